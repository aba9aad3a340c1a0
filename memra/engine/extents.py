"""Who holds which bytes of one long stretch of storage: best fit, and holes that grow together again.

Knows offsets and lengths only; refuses to know what is stored there, or whether in a file or in memory. Used by
`memra.engine.host_store`, in the worker's thread.
"""

from bisect import bisect_left, insort

from memra.errors import IntegrityError

BLOCK_BYTES = 4096
"""Extents begin and end at multiples of this: a page of memory, and the block of common file systems."""


class ExtentMap:
    """Hands out extents of `[0, num_bytes)` and takes them back.

    Neighbouring holes are joined at once, so that giving back everything always leaves one hole: whoever is refused
    and gives back more and more gets room in the end, whatever the sizes were.
    """

    def __init__(self, num_bytes: int) -> None:
        """Start with one hole, of as many whole blocks as fit into `num_bytes`."""
        self._num_bytes = num_bytes - num_bytes % BLOCK_BYTES
        self._held: dict[int, int] = {}
        self._num_held_bytes = 0
        self._length_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._by_length: list[tuple[int, int]] = []
        if self._num_bytes:
            self._add_hole(0, self._num_bytes)

    @property
    def num_bytes(self) -> int:
        """Bytes in all, held or not."""
        return self._num_bytes

    @property
    def num_held_bytes(self) -> int:
        """Bytes that are held, rounded up to whole blocks."""
        return self._num_held_bytes

    @property
    def num_held(self) -> int:
        """Extents that are held."""
        return len(self._held)

    def allocate(self, num_bytes: int) -> int | None:
        """Take an extent of at least `num_bytes`; return its offset, or None when no hole is long enough."""
        wanted = max(1, -(-num_bytes // BLOCK_BYTES)) * BLOCK_BYTES
        place = bisect_left(self._by_length, (wanted, 0))
        if place == len(self._by_length):
            return None
        length, offset = self._by_length[place]
        self._remove_hole(offset)
        if length > wanted:
            self._add_hole(offset + wanted, length - wanted)
        self._held[offset] = wanted
        self._num_held_bytes += wanted
        return offset

    def free(self, offset: int) -> None:
        """Give back the extent at an offset.

        Raises:
            IntegrityError: none is held there.
        """
        length = self._held.pop(offset, None)
        if length is None:
            raise IntegrityError(f"no extent at {offset} is held")
        self._num_held_bytes -= length
        start, end = offset, offset + length
        if (before := self._start_before.get(start)) is not None:
            self._remove_hole(before)
            start = before
        if (after := self._length_at.get(end)) is not None:
            self._remove_hole(end)
            end += after
        self._add_hole(start, end - start)

    def check_integrity(self) -> None:
        """Raise unless extents and holes tile the whole and no two holes touch.

        Raises:
            IntegrityError: names the first contradiction.
        """
        end, was_hole = 0, False
        for offset, length in sorted([*self._held.items(), *self._length_at.items()]):
            is_hole = offset in self._length_at
            if offset != end or length <= 0 or length % BLOCK_BYTES:
                raise IntegrityError(f"the extent at {offset} of {length} bytes does not follow the one up to {end}")
            if is_hole and was_hole:
                raise IntegrityError(f"two holes touch at {offset}")
            end, was_hole = offset + length, is_hole
        if end != self._num_bytes:
            raise IntegrityError(f"extents end at {end} of {self._num_bytes}")
        if self._num_held_bytes != sum(self._held.values()):
            raise IntegrityError(f"{self._num_held_bytes} bytes are counted, {sum(self._held.values())} are held")
        holes = sorted((length, offset) for offset, length in self._length_at.items())
        ends = {offset + length: offset for offset, length in self._length_at.items()}
        if holes != self._by_length or ends != self._start_before:
            raise IntegrityError("the indexes of holes differ from the holes")

    def _add_hole(self, offset: int, length: int) -> None:
        self._length_at[offset] = length
        self._start_before[offset + length] = offset
        insort(self._by_length, (length, offset))

    def _remove_hole(self, offset: int) -> None:
        length = self._length_at.pop(offset)
        del self._start_before[offset + length]
        del self._by_length[bisect_left(self._by_length, (length, offset))]
