"""Extents tile the storage, and holes grow together again."""

import pytest

from memra.engine.extents import BLOCK_BYTES, ExtentMap
from memra.errors import IntegrityError


def test_giving_back_everything_leaves_one_hole_whatever_the_sizes_were():
    extents = ExtentMap(100 * BLOCK_BYTES + 7)
    offsets = [extents.allocate(size * BLOCK_BYTES) for size in (30, 1, 40, 2, 27)]
    assert extents.allocate(1) is None
    for offset in (offsets[i] for i in (3, 1, 0, 4, 2)):
        assert offset is not None
        extents.free(offset)
        extents.check_integrity()
    assert extents.allocate(100 * BLOCK_BYTES) == 0


def test_the_smallest_hole_that_fits_is_taken():
    extents = ExtentMap(20 * BLOCK_BYTES)
    large, _, small, _ = (extents.allocate(size * BLOCK_BYTES) for size in (5, 1, 2, 1))
    extents.free(large or 0)
    extents.free(small or 0)
    assert extents.allocate(2 * BLOCK_BYTES) == small
    assert extents.allocate(2 * BLOCK_BYTES) == large


def test_an_extent_takes_whole_blocks_and_at_least_one():
    extents = ExtentMap(10 * BLOCK_BYTES)
    extents.allocate(0)
    extents.allocate(BLOCK_BYTES + 1)
    assert (extents.num_held_bytes, extents.num_held) == (3 * BLOCK_BYTES, 2)


@pytest.mark.parametrize("num_bytes", [0, BLOCK_BYTES - 1])
def test_storage_below_one_block_has_no_room(num_bytes: int):
    extents = ExtentMap(num_bytes)
    assert extents.allocate(1) is None
    extents.check_integrity()


def test_an_extent_is_given_back_once():
    extents = ExtentMap(BLOCK_BYTES)
    offset = extents.allocate(1)
    assert offset is not None
    extents.free(offset)
    with pytest.raises(IntegrityError, match="no extent at 0 is held"):
        extents.free(offset)


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: e._held.update({3 * BLOCK_BYTES: BLOCK_BYTES}),
        lambda e: e._held.pop(0),
        lambda e: setattr(e, "_num_held_bytes", 0),
        lambda e: e._by_length.pop(),
        lambda e: e._start_before.clear(),
        lambda e: (e._remove_hole(BLOCK_BYTES), e._add_hole(BLOCK_BYTES, BLOCK_BYTES)),
        lambda e: (
            e._remove_hole(BLOCK_BYTES),
            e._add_hole(BLOCK_BYTES, BLOCK_BYTES),
            e._add_hole(2 * BLOCK_BYTES, 8 * BLOCK_BYTES),
        ),
    ],
)
def test_a_contradiction_is_found(damage):
    extents = ExtentMap(10 * BLOCK_BYTES)
    extents.allocate(1)
    extents.check_integrity()
    damage(extents)
    with pytest.raises(IntegrityError):
        extents.check_integrity()
