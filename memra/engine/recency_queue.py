"""Who was used longest ago: a queue of candidates for eviction, ordered by their last use.

Knows nothing of what it holds beyond `last_used`. An item is pushed whenever it was used or became a candidate; entries
that have become stale are skipped when they come up, so nothing is ever searched for.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Used(Protocol):
    """What can be queued; `last_used` is a tick of one clock that never stands still."""

    last_used: int


T = TypeVar("T", bound=Used)

_SMALLEST_HEAP = 64
"""Below this many entries stale ones are not worth a sweep."""


class RecencyQueue(Generic[T]):
    """Items that may be evicted, least recently used first."""

    def __init__(self, is_candidate: Callable[[T], bool]) -> None:
        """Start empty.

        Args:
            is_candidate: whether an item may be evicted now; one that may not is forgotten until it is pushed again.
        """
        self._is_candidate = is_candidate
        self._entries: list[tuple[int, int, T]] = []
        self._num_pushed = 0
        self._sweep_above = _SMALLEST_HEAP

    def push(self, item: T) -> None:
        """Put an item in its place by its last use; harmless when it is there already."""
        self._num_pushed += 1
        heappush(self._entries, (item.last_used, self._num_pushed, item))
        if len(self._entries) > self._sweep_above:
            self._sweep()

    def pop(self) -> T | None:
        """Take out the candidate that was used longest ago; None when there is none."""
        oldest = self.peek()
        if oldest is not None:
            heappop(self._entries)
        return oldest

    def peek(self) -> T | None:
        """Return what `pop` would take out."""
        while self._entries:
            last_used, _, item = self._entries[0]
            if last_used == item.last_used and self._is_candidate(item):
                return item
            heappop(self._entries)
        return None

    def _sweep(self) -> None:
        """Drop stale and doubled entries; amortised over as many pushes as are left."""
        newest = {id(entry[2]): entry for entry in self._entries if entry[0] == entry[2].last_used}
        self._entries = [entry for entry in newest.values() if self._is_candidate(entry[2])]
        heapify(self._entries)
        self._sweep_above = max(_SMALLEST_HEAP, 2 * len(self._entries))
