"""How deep lists and objects may lie within one another: what reads a value later does so by recursion.

Refuses to know what is nested. Called where bodies are read, and where a field holds JSON as text.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from memra.errors import InvalidRequestError

MAX_DEPTH = 128
"""Lists and objects within one another, as serde_json has it."""

_HOLDERS = (dict, list, msgspec.Struct)


def check_depth(value: Any) -> None:
    """Refuse a value that is nested too deeply; costs no recursion itself.

    Raises:
        InvalidRequestError: more than `MAX_DEPTH` levels.
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, _HOLDERS)]
        if not level:
            return
    raise too_deep()


def check_text_depth(text: str, *, param: str) -> None:
    """Refuse JSON text that may be nested too deeply; text that is no JSON is left to whoever reads it.

    Raises:
        InvalidRequestError: more than `MAX_DEPTH` levels, or too many to count.
    """
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    try:
        check_depth([msgspec.json.decode(text)])
    except msgspec.DecodeError:
        return
    except (RecursionError, InvalidRequestError):
        raise too_deep(param) from None


def too_deep(param: str | None = None) -> InvalidRequestError:
    """Return the refusal, of a field or of the whole body."""
    place = "The body" if param is None else f"`{param}`"
    return InvalidRequestError(f"{place} is nested too deeply: {MAX_DEPTH} levels are the limit.", param=param)


def _values(outer: Any) -> Iterable[Any]:
    if isinstance(outer, dict):
        return outer.values()
    if isinstance(outer, msgspec.Struct):
        return (getattr(outer, name) for name in outer.__struct_fields__)
    return outer if isinstance(outer, list) else ()
