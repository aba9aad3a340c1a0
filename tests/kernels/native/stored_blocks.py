"""Random stored blocks of every GGML type that the native engine lays out in tiles."""

import numpy as np
from numpy.typing import NDArray

# Bytes of each float16 scale in a stored block (ggml-common.h).
_HALF_OFFSETS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "F16": (0,),
}
# Elements and bytes of a stored block.
_BLOCKS = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "MXFP4": (32, 17), "Q4_0": (32, 18), "Q4_1": (32, 20)}
_BLOCKS |= {"Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "IQ4_NL": (32, 18), "Q2_K": (256, 84)}
_BLOCKS |= {"Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "IQ4_XS": (256, 136)}


def block_shape(quant_type: str) -> tuple[int, int]:
    return _BLOCKS[quant_type]


def random_stored(quant_type: str, rows: int, columns: int, *, seed: int = 0, scale: float = 1.0) -> NDArray[np.uint8]:
    """Random stored blocks `[rows, bytes]` whose scales are finite; a tenth each are zero, smallest and largest."""
    rng = np.random.default_rng(seed)
    elements, size = _BLOCKS[quant_type]
    if quant_type == "F32":
        return rng.standard_normal((rows, columns)).astype(np.float32).view(np.uint8)
    if quant_type == "BF16":
        floats = rng.standard_normal((rows, columns)).astype(np.float32)
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    raw = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    for offset in _HALF_OFFSETS.get(quant_type, ()):
        values = (rng.standard_normal(raw.shape[:2]) * scale).astype(np.float16)
        if scale == 1.0:
            edge = rng.integers(0, 10, raw.shape[:2])
            for case, value in enumerate((0.0, 5.96e-8, 65504.0, -65504.0)):
                values[edge == case] = np.float16(value)
        raw[:, :, offset : offset + 2] = values.view(np.uint8).reshape(*values.shape, 2)
    if quant_type == "MXFP4":
        raw[:, :, 0] = np.minimum(raw[:, :, 0], 254) if scale == 1.0 else 120 + raw[:, :, 0] % 8
    return raw.reshape(rows, -1)
