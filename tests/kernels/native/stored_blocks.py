"""Random stored blocks of every GGML type that the native engine lays out in tiles, and what they say."""

import gguf
import gguf.quants
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
    "IQ1_S": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "Q1_0": (0,),
    "F16": (0,),
}


def block_shape(quant_type: str) -> tuple[int, int]:
    """Elements and bytes of a stored block."""
    elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    return elements, num_bytes


def random_stored(quant_type: str, rows: int, columns: int, *, seed: int = 0, scale: float = 1.0) -> NDArray[np.uint8]:
    """Random stored blocks `[rows, bytes]` whose scales are finite; a tenth each are zero, smallest and largest."""
    rng = np.random.default_rng(seed)
    elements, size = block_shape(quant_type)
    if quant_type == "F32":
        return rng.standard_normal((rows, columns)).astype(np.float32).view(np.uint8)
    if quant_type == "BF16":
        floats = rng.standard_normal((rows, columns)).astype(np.float32)
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    raw = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    for offset in _HALF_OFFSETS.get(quant_type, ()):
        raw[:, :, offset : offset + 2] = _halves(rng, raw.shape[:2], scale).view(np.uint8).reshape(*raw.shape[:2], 2)
    if quant_type == "IQ1_M":  # a float16 in the upper nibbles of four words
        bits = _halves(rng, raw.shape[:2], scale).view(np.uint16)
        for word in range(4):
            high = raw[:, :, 49 + 2 * word]
            high[:] = high & 15 | (bits >> (4 * word) & 15).astype(np.uint8) << 4
    if quant_type == "MXFP4":
        raw[:, :, 0] = np.minimum(raw[:, :, 0], 254) if scale == 1.0 else 120 + raw[:, :, 0] % 8
        raw[:, ::3, 1:] &= 0x88  # zeros, and negative ones
    if quant_type == "NVFP4" and scale != 1.0:
        raw[:, :, :4] %= 24  # up to a sixteenth
    return raw.reshape(rows, -1)


def _halves(rng: np.random.Generator, shape: tuple[int, int], scale: float) -> NDArray[np.float16]:
    values = (rng.standard_normal(shape) * scale).astype(np.float16)
    if scale == 1.0:
        edge = rng.integers(0, 10, shape)
        for case, value in enumerate((0.0, 5.96e-8, 65504.0, -65504.0)):
            values[edge == case] = np.float16(value)
    return values


def dequantised(stored: NDArray[np.uint8], quant_type: str) -> NDArray[np.float32]:
    """Rows as the `gguf` package reads them; for Q1_0, which it cannot, plus or minus a block's float16."""
    if quant_type == "Q1_0":
        blocks = stored.reshape(-1, 18)
        signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1
        values = blocks[:, :2].copy().view(np.float16).astype(np.float32) * signs
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            values = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[quant_type])
    return np.asarray(values, np.float32).reshape(len(stored), -1)
