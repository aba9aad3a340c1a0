"""`config.json` of a safetensors directory, each value checked at the moment it is asked for.

Refuses to know which keys there are: the families do.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError

_SHOWN_CHARS: Final = 80
_TOO_LARGE: Final = 1e300
MAX_LAYERS: Final = 1 << 12
"""Thirty times the deepest models known: a damaged number must not fill the memory."""


class Configuration:
    """config.json with its types checked at the moment a value is asked for."""

    def __init__(self, values: Mapping[str, object], path: Path) -> None:
        """Keep the values; `path` is for messages."""
        self.values = values
        self.path = path

    def integer(self, key: str, default: int | None = None, *, limit: int = (1 << 31) - 1) -> int:
        """A positive integer up to `limit`: a damaged number must not fill the memory.

        Raises:
            CorruptFileError: it is missing without a default, or something else.
        """
        value = self._lookup(key, default)
        if type(value) is not int or not 1 <= value <= limit:
            raise CorruptFileError(
                f"{self.path}: {key!r} is {shown(value)}, not a positive integer up to {limit}: fetch the file again"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number.

        Raises:
            CorruptFileError: it is missing without a default, or something else.
        """
        value = self._lookup(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _TOO_LARGE:
            raise CorruptFileError(
                f"{self.path}: {key!r} is {shown(value)}, not a positive number: fetch the file again"
            )
        return float(value)

    def mapping(self, key: str) -> "Configuration | None":
        """A nested object, or None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CorruptFileError(f"{self.path}: {key!r} is no JSON object: fetch the file again")
        return Configuration(value, self.path)

    def has(self, key: str) -> bool:
        """True where the key has a value other than null."""
        return self.values.get(key) is not None

    def _lookup(self, key: str, default: float | None) -> object:
        value = self.values.get(key)
        return default if value is None else value


def shown(value: object) -> str:
    """A value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
