"""Counts the fields of request bodies that this server does not know, and so ignores.

An ignored field is the commonest cause of an answer that is not what its client expected, and nothing in the answer
shows it; here it shows. Only the outermost fields of a body are looked at. Names are the clients', so few are kept,
short and plain ones; the others are counted together. Refuses to know what fields mean. Called where bodies are read;
shown by `/metrics`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

MAX_NAMES = 64
"""Names that are counted each for itself, first come first served."""

OTHER = "(other)"
"""The names past that, and those that are long or hold unusual characters; no plain name is spelt so."""

_PLAIN = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


class IgnoredFields:
    """The counts of one server; used from the trio thread alone."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many bodies held a field, by its name."""
        return dict(self._counts)

    def add(self, names: Iterable[str]) -> None:
        """Count the unknown fields of one body."""
        for name in names:
            self._counts[self._kept(name)] += 1

    def _kept(self, name: str) -> str:
        if name in self._counts:
            return name
        num_kept = len(self._counts) - (OTHER in self._counts)
        return name if num_kept < MAX_NAMES and _PLAIN.fullmatch(name) else OTHER
