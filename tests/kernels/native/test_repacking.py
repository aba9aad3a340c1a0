"""Tiles in memory of the caller's: the same as the plan's own, and refused where they cannot be right."""

from collections.abc import Iterator

import numpy as np
import pytest
from memra_kernels import native
from memra_kernels.native import GGML_TYPES, NativeError, Plan, ThreadPool
from memra_kernels.repacking import layout_version, repack, tile_bytes
from numpy.typing import NDArray

from tests.kernels.native.stored_blocks import random_stored

ROWS, COLUMNS = 37, 512
"""Rows that do not fill the last tile."""


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))
    pool = ThreadPool(2)
    yield pool
    pool.close()


@pytest.fixture
def plan(pool: ThreadPool) -> Iterator[Plan]:
    plan = Plan(pool, variant="scalar", max_rows=1)
    yield plan
    plan.close()


def _aligned(size: int, *, filled_with: int) -> NDArray[np.uint8]:
    memory = np.full(size + 64, filled_with, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size]


@pytest.mark.parametrize("quant_type", GGML_TYPES)
def test_tiles_are_the_same_wherever_they_were_written(quant_type: str, pool: ThreadPool, plan: Plan):
    stored = random_stored(quant_type, ROWS, COLUMNS, seed=1, scale=0.01)
    shape = {"quant_type": quant_type, "rows": ROWS, "columns": COLUMNS}
    written = []
    for before in (0, 255):  # what the memory held does not matter
        tiles = _aligned(tile_bytes(quant_type, rows=ROWS, columns=COLUMNS), filled_with=before)
        repack(pool, stored, tiles, **shape)
        written.append(tiles)
    np.testing.assert_array_equal(written[0], written[1])
    size = plan.num_bytes
    own, given = plan.weight(stored, **shape), plan.tiles(written[0], **shape)
    assert plan.num_bytes == size + 2 * written[0].nbytes
    np.testing.assert_array_equal(plan.unpack(given).view(np.uint32), plan.unpack(own).view(np.uint32))


def test_what_cannot_be_right_is_refused(pool: ThreadPool, plan: Plan):
    shape = {"quant_type": "Q8_0", "rows": ROWS, "columns": COLUMNS}
    stored = random_stored("Q8_0", ROWS, COLUMNS, seed=1, scale=0.01)
    size = tile_bytes("Q8_0", rows=ROWS, columns=COLUMNS)
    tiles = _aligned(size + 64, filled_with=0)
    with pytest.raises(NativeError, match="size of the matrix"):
        repack(pool, stored, tiles, **shape)
    with pytest.raises(NativeError, match="size that shape and type ask for"):
        repack(pool, stored[:-1], tiles[:size], **shape)
    with pytest.raises(NativeError, match="size of the matrix"):
        plan.tiles(tiles, **shape)
    with pytest.raises(NativeError, match="multiple of 64"):
        plan.tiles(tiles[1 : size + 1], **shape)
    with pytest.raises(NativeError, match="Q8_1 has no tiled layout"):
        plan.tiles(tiles, quant_type="Q8_1", rows=ROWS, columns=COLUMNS)
    with pytest.raises(NativeError, match="Q8_1 has no tiled layout"):
        tile_bytes("Q8_1", rows=ROWS, columns=COLUMNS)
    with pytest.raises(NativeError, match="does not fit the type"):
        tile_bytes("Q8_0", rows=ROWS, columns=33)
    stored.reshape(-1)[1] = 0x7E
    with pytest.raises(NativeError, match="NaN or infinite scale in rows 0 to 15"):
        repack(pool, stored, tiles[:size], **shape)


def test_the_version_of_the_layouts_is_sixteen_hex_digits():
    assert len(layout_version()) == 16
    int(layout_version(), 16)
