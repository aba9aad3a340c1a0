"""Key-value pages, or recurrent states, by number, with reference counts.

Knows ids and counts only: not what a page holds, nor which sequence or prefix holds it. The scheduler takes and returns
pages here; the executor owns the memory behind the ids. Used by the worker's thread alone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from memra.errors import IntegrityError


class PagePool:
    """Hands out page ids and takes them back; a page is free again when its last holder lets go."""

    def __init__(self, num_pages: int, *, noun: str = "page") -> None:
        """Start with every page free.

        Args:
            num_pages: ids are 0 to num_pages - 1.
            noun: what messages call a page.
        """
        self._noun = noun
        self._num_holders = [0] * num_pages
        # A stack: the page freed last is the one most likely still in a near cache.
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_pages(self) -> int:
        """Pages in all, free or held."""
        return len(self._num_holders)

    @property
    def num_free(self) -> int:
        """Pages that `allocate` can still hand out."""
        return len(self._free)

    def allocate(self, num: int) -> tuple[int, ...] | None:
        """Take `num` pages, each with one holder; None, with nothing taken, when there is no room.

        Their contents are whatever the last holder left.
        """
        if num > len(self._free):
            return None
        page_ids = tuple(self._free.pop() for _ in range(num))
        for page_id in page_ids:
            self._num_holders[page_id] = 1
        return page_ids

    def count_holders(self, page_id: int) -> int:
        """Return how many hold a page; 0 when it is free."""
        return self._num_holders[page_id]

    def retain(self, page_ids: Iterable[int]) -> None:
        """Add one holder to pages that are held already.

        Raises:
            IntegrityError: a page is free; nothing is changed then.
        """
        page_ids = tuple(page_ids)
        self._require_held(Counter(dict.fromkeys(page_ids, 1)))
        for page_id in page_ids:
            self._num_holders[page_id] += 1

    def release(self, page_ids: Iterable[int]) -> None:
        """Take one holder off each page; those without any become free.

        Raises:
            IntegrityError: a page has fewer holders than are taken off; nothing is changed then.
        """
        page_ids = tuple(page_ids)
        self._require_held(Counter(page_ids))
        # Backwards, so that the next allocation of as many pages gets them in the same order.
        for page_id in reversed(page_ids):
            self._num_holders[page_id] -= 1
            if self._num_holders[page_id] == 0:
                self._free.append(page_id)

    def check_integrity(self, holders: Iterable[Sequence[int]]) -> None:
        """Compare the counts with the page lists of all holders.

        Raises:
            IntegrityError: a page is lost, free and held, or counted wrongly; the first such page is named.
        """
        expected = Counter(page_id for page_ids in holders for page_id in page_ids)
        free = Counter(self._free)
        for page_id, num_holders in enumerate(self._num_holders):
            if num_holders != expected[page_id]:
                raise IntegrityError(
                    f"{self._noun} {page_id} is counted for {num_holders} holders, but {expected[page_id]} hold it"
                )
            if free[page_id] != (num_holders == 0):
                raise IntegrityError(
                    f"{self._noun} {page_id} has {num_holders} holders and is {free[page_id]} times in the free list"
                )
        strangers = (expected | free).keys() - set(range(self.num_pages))
        if strangers:
            raise IntegrityError(
                f"{self._noun} {min(strangers)} is held or free, but the pool has {self.num_pages} of them"
            )

    def _require_held(self, wanted: Counter[int]) -> None:
        for page_id, num in wanted.items():
            num_holders = self._num_holders[page_id] if 0 <= page_id < self.num_pages else 0
            if num_holders < num:
                raise IntegrityError(f"{self._noun} {page_id} has {num_holders} holders, but {num} were expected")
