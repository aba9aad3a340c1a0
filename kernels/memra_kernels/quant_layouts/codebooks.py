"""The grids of ggml's IQ1, IQ2 and IQ3 types, as the native library wants them: one array of levels.

A grid turns the index that a block stores into the magnitudes of four or eight neighbouring weights. The values are
those that the `gguf` package ships; a level says which of the grid's few different values stands in a place. Refuses to
know blocks, scales and signs: `codebook_blocks.h` does.
"""

from typing import Any

import numpy as np
from gguf import quants
from numpy.typing import NDArray

_GRIDS = (quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S)
"""In the order of `Grids` of `codebook_blocks.h`; IQ1_M reads the grid of IQ1_S."""


def grid_levels() -> NDArray[np.uint8]:
    """All grids behind one another, uint8; each entry counts the smaller values of its grid: 0, 1, 2 up to 7."""
    return np.concatenate([_levels(quant) for quant in _GRIDS])


def _levels(quant: Any) -> NDArray[np.uint8]:
    quant.init_grid()
    values = np.asarray(quant.grid, np.float32).reshape(-1)
    return np.searchsorted(np.unique(quant.grid_map), values).astype(np.uint8)
