"""Stored matrices repacked into memory of the caller's, for `native.Plan.tiles` to take without any work.

Trade: sizes, the version of the layouts, and the repacking itself. Knows no files: where the tiles are kept, and for
how long, is the caller's business.
"""

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native import GGML_TYPES, ThreadPool
from memra_kernels.native_library import NativeError, checked, library

TAIL_BYTES = 64 << 10
"""Readable memory behind the last tile, past which kernels may prefetch: `slack` of `runtime/arena.cpp`."""

_LAYOUTS = Path(__file__).resolve().parent / "quant_layouts"


@cache
def layout_version() -> str:
    """Sixteen hex digits over the sources that decide what tiles look like: tiles of another version are of no use."""
    digest = hashlib.sha256()
    for path in sorted((*_LAYOUTS.glob("*.h"), *_LAYOUTS.glob("*.cpp"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def tile_bytes(quant_type: str, *, rows: int, columns: int) -> int:
    """Bytes that a matrix of this stored type takes in tiles.

    Raises:
        NativeError: no layout for the type, or rows that its blocks do not fill.
    """
    return checked(library().memra_weight_bytes(_number(quant_type), rows, columns))


def repack(  # noqa: PLR0913  (a matrix, and where it goes)
    pool: ThreadPool,
    stored: NDArray[np.uint8],
    tiles: NDArray[np.uint8],
    *,
    quant_type: str,
    rows: int,
    columns: int,
) -> None:
    """Write a stored matrix into `tiles`, losslessly; uint8 `[tile_bytes]`, contiguous, whose content does not matter.

    Raises:
        NativeError: as `native.Plan.weight`, or `tiles` has another size.
    """
    if tiles.nbytes != tile_bytes(quant_type, rows=rows, columns=columns) or not tiles.flags.c_contiguous:
        raise NativeError("the memory for the tiles does not have the size of the matrix")
    data = np.ascontiguousarray(stored)
    number, address = _number(quant_type), tiles.ctypes.data
    checked(library().memra_repack(pool.handle, number, data.ctypes.data, data.nbytes, rows, columns, address))


def _number(quant_type: str) -> int:
    if quant_type not in GGML_TYPES:
        raise NativeError(f"type {quant_type} has no tiled layout")
    return GGML_TYPES[quant_type]
