"""The choice of tile heights, with libraries that keep and break the promise in known ways."""

from collections.abc import Callable

import pytest
import torch
from memra_kernels.linear.tiles import (
    ATTENTION_PREFERENCES,
    HEAD_PREFERENCES,
    LINEAR_PREFERENCES,
    RowTiles,
    probe_row_tiles,
)


def _library(*orders: range, uneven: frozenset[int] = frozenset()) -> Callable[[int], torch.Tensor]:
    """Give rows the bits of the class that the height falls into; the last row of an uneven height differs."""

    def product(height: int) -> torch.Tensor:
        [order] = [index for index, heights in enumerate(orders) if height in heights]
        rows = torch.full((height, 3), float(order))
        if height in uneven:
            rows[-1] += 0.5
        return rows

    return product


def test_a_library_without_classes_gets_the_best_pair():
    assert probe_row_tiles(_library(range(1, 999)), LINEAR_PREFERENCES) == RowTiles(2, 128)
    assert probe_row_tiles(_library(range(1, 999)), HEAD_PREFERENCES) == RowTiles(2, 8)
    assert probe_row_tiles(_library(range(1, 999)), ATTENTION_PREFERENCES) == RowTiles(1, 16)


def test_heights_of_different_classes_are_never_mixed():
    product = _library(range(1, 2), range(2, 16), range(16, 100), range(100, 999))
    assert probe_row_tiles(product, LINEAR_PREFERENCES) == RowTiles(2, 8)
    assert probe_row_tiles(product, ATTENTION_PREFERENCES) == RowTiles(16, 16)
    product = _library(range(1, 4), range(4, 8), range(8, 100), range(100, 999))
    assert probe_row_tiles(product, LINEAR_PREFERENCES) == RowTiles(8, 64)


def test_a_height_with_an_uneven_place_is_not_taken():
    product = _library(range(1, 999), uneven=frozenset({2, 128}))
    assert probe_row_tiles(product, LINEAR_PREFERENCES) == RowTiles(4, 64)


def test_rows_go_one_by_one_where_nothing_agrees():
    product = _library(range(1, 999), uneven=frozenset(range(2, 999)))
    assert probe_row_tiles(product, LINEAR_PREFERENCES) == RowTiles(1, 1)


@pytest.mark.parametrize(
    ("num_rows", "heights"),
    [(0, []), (1, [16]), (16, [16]), (48, [16] * 3), (144, [128, 16]), (300, [128, 128, 16, 16, 16])],
)
def test_cutting_covers_the_rows_with_large_tiles_first(num_rows: int, heights: list[int]):
    assert RowTiles(16, 128).cut(num_rows) == heights
