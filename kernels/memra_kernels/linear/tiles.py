"""Which numbers of rows a matrix library may be given together without changing any row's bits.

Trade: asks the library itself, once per weight, instead of trusting it. Measured with MKL 2024.2 on AVX-512: the row's
place in a product never mattered, but the number of rows did (one, 2 to 8, and 16 or more rows are three different
orders of summation for many shapes; above 32 there are more). Another library answers differently, and is asked anew.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

LINEAR_PREFERENCES = (
    *((small, large) for small in (2, 4, 8, 16) for large in (128, 64, 32, 16, 8) if small <= large),
    (4, 4),
    (2, 2),
)
"""Two rows cost no more than one, as both wait for the weight; sixteen cost three times as much."""

HEAD_PREFERENCES = ((2, 8), (4, 8), (8, 8), (16, 16), (4, 4), (2, 2))
"""Few rows want logits, and a tall tile of them would be large."""

ATTENTION_PREFERENCES = ((1, 16), (2, 16), (4, 16), (8, 16), (16, 16), (8, 8), (4, 4), (2, 2))
"""Bound by arithmetic, so a decoding row pays for the padding beside it."""


@dataclass(frozen=True, slots=True)
class RowTiles:
    """Two tile heights that give a row the same bits, wherever it lies in the tile.

    Attributes:
        small: for the rest of the rows, which is padded.
        large: for long runs of rows; a multiple of `small`.
    """

    small: int
    large: int

    def cut(self, num_rows: int) -> list[int]:
        """Heights of the tiles that cover this many rows; a last tile that is not full counts wholly."""
        num_large, rest = divmod(num_rows, self.large)
        return [self.large] * num_large + [self.small] * -(-rest // self.small)


def probe_row_tiles(product: Callable[[int], torch.Tensor], preferences: Iterable[tuple[int, int]]) -> RowTiles:
    """Find the first pair of heights at which equal rows get equal bits in every place and at both heights.

    Args:
        product: computes that many copies of one row, `[rows, ...]`; deterministic, and of values whose sums show
            the order in which they were taken.
        preferences: pairs `(small, large)`, the best first.

    Returns:
        The pair; one row at a time where none agrees.
    """
    seen: dict[int, torch.Tensor | None] = {}

    def bits_at(height: int) -> torch.Tensor | None:
        if height not in seen:
            rows = product(height)
            seen[height] = rows[0].clone() if bool((rows == rows[0]).all()) else None
        return seen[height]

    for small, large in preferences:
        bits, large_bits = bits_at(small), bits_at(large)
        if bits is not None and large_bits is not None and torch.equal(bits, large_bits):
            return RowTiles(small, large)
    return RowTiles(1, 1)
