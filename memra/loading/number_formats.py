"""Numbers of eight and four bits, and the layouts of GGML that hold them: the arithmetic of quantised weights.

Trade: exact tables and packings. Refuses to know tensors' names and which checkpoint writes what. Called by the modules
that read quantised safetensors. Formats: E4M3 as in "FP8 Formats for Deep Learning" (Micikevicius et al., 2022), E2M1
and E8M0 as in the OCP Microscaling specification 1.0, blocks of GGML as in `gguf.quants`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from memra.errors import UnsupportedModelError
from memra.loading.checkpoint import StoredTensor

Q_BLOCK: Final = 32
"""Values that share a scale in Q4_0, Q5_0, Q8_0 and MXFP4."""


def _e4m3_table() -> NDArray[np.float32]:
    """Sign, four bits of exponent (bias 7), three of mantissa; no infinity, and NaN where all seven bits are set."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude[codes & 127 == 127] = np.nan  # noqa: PLR2004  (all seven bits)
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


E4M3: Final = _e4m3_table()
"""Value of every FP8 e4m3fn code."""
E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Value of every FP4 code."""
E8M0_NAN: Final = 255


def _table_by_word(table: NDArray[np.float32], num_bits: int) -> NDArray[np.void]:
    """The values of all codes in a 16-bit word, lowest bits first, as one item for each word."""
    words, per_word = np.arange(1 << 16), 16 // num_bits
    values = np.stack([table[words >> (num_bits * at) & (len(table) - 1)] for at in range(per_word)], axis=-1)
    return np.ascontiguousarray(values).view(np.dtype((np.void, 4 * per_word))).reshape(-1)


_E4M3_BY_WORD: Final = _table_by_word(E4M3, 8)
_E2M1_BY_WORD: Final = _table_by_word(E2M1, 4)

_INTEGER_TYPES: Final = {"I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64}


def decode_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """FP8 codes `[rows, columns]` as float32 of the same shape."""
    return _decoded(codes, _E4M3_BY_WORD) if codes.shape[1] % 2 == 0 else E4M3[codes]


def decode_e2m1(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """FP4 codes `[rows, columns / 2]`, low four bits first, as float32 `[rows, columns]`."""
    return _decoded(packed, _E2M1_BY_WORD) if packed.shape[1] % 2 == 0 else E2M1[nibbles(packed)]


def _decoded(codes: NDArray[np.uint8], table: NDArray[np.void]) -> NDArray[np.float32]:
    words = np.ascontiguousarray(codes).view(np.uint16)  # little-endian, as the file
    return table[words].view(np.float32).reshape(len(codes), -1)


def scale_groups(values: NDArray[np.float32], scales: NDArray[np.float32]) -> None:
    """Multiply `[rows, columns]` in place by `[rows, groups]`; groups are equal stretches of columns."""
    rows, groups = scales.shape
    values.reshape(rows, groups, -1)[...] *= scales[..., None]


def e8m0(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Powers of two, `2 ** (code - 127)`; code 255 is NaN."""
    values = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
    return np.where(codes == E8M0_NAN, np.float32(np.nan), values).astype(np.float32)


def read_numbers(tensor: StoredTensor) -> NDArray[np.float32]:
    """A safetensors tensor of scales as float32, in its shape; every element type here is exact in float32.

    Raises:
        UnsupportedModelError: it is of another type.
    """
    match tensor.quant_type:
        case "F32":
            values = tensor.data.view(np.float32)
        case "F16":
            values = tensor.data.view(np.float16).astype(np.float32)
        case "BF16":
            values = (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        case "F8_E4M3":
            values = E4M3[tensor.data]
        case "F8_E8M0":
            values = e8m0(tensor.data)
        case _:
            raise UnsupportedModelError(
                f"the scales {tensor.name!r} are of type {tensor.quant_type!r}: use a GGUF file of this model"
            )
    return values.reshape(tensor.shape)


def read_integers(tensor: StoredTensor) -> NDArray[np.integer]:
    """A safetensors tensor of integers as a view of the file, in its shape.

    Raises:
        UnsupportedModelError: it is of another type.
    """
    if tensor.quant_type not in _INTEGER_TYPES:
        raise UnsupportedModelError(
            f"the tensor {tensor.name!r} is of type {tensor.quant_type!r} where integers are expected: "
            "use a GGUF file of this model"
        )
    return tensor.data.view(_INTEGER_TYPES[tensor.quant_type]).reshape(tensor.shape)


def nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Twice as many values along the last axis: of each byte the low four bits, then the high ones."""
    return np.stack((packed & np.uint8(15), packed >> np.uint8(4)), axis=-1).reshape(*packed.shape[:-1], -1)


def are_powers_of_two(scales: NDArray[np.float32], *, lowest: int, highest: int) -> bool:
    """Whether every scale is `2 ** n` with n from `lowest` to `highest`."""
    with np.errstate(invalid="ignore"):
        mantissas, exponents = np.frexp(scales)
    exponents = exponents - 1
    return bool(np.all((mantissas == 0.5) & (exponents >= lowest) & (exponents <= highest)))  # noqa: PLR2004  (frexp)


def are_halves(scales: NDArray[np.float32]) -> bool:
    """Whether every scale is finite and exactly a float16, which is what GGML's blocks hold."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(scales).all() and np.array_equal(scales.astype(np.float16).astype(np.float32), scales))


def encode_bf16(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The upper halves of float32 values `[rows, columns]`; exact where the lower halves are zero."""
    return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def encode_mxfp4(codes: NDArray[np.uint8], exponents: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """E2M1 codes `[rows, columns]` and E8M0 scales `[rows, columns / 32]` as MXFP4 blocks."""
    rows = codes.shape[0]
    packed = _halves_packed(codes.reshape(rows, -1, Q_BLOCK))
    return np.concatenate((exponents[..., None], packed), axis=-1).reshape(rows, -1)


def encode_integers(signed: NDArray[np.int8], scales: NDArray[np.float32], quant_type: str) -> NDArray[np.uint8]:
    """`signed * scale` as blocks of Q4_0, Q5_0 or Q8_0, without loss.

    Args:
        signed: int8 `[rows, columns]`; -8 to 7 for Q4_0, -16 to 15 for Q5_0.
        scales: `[rows, columns / 32]`, each exactly a float16.
        quant_type: one of the three.
    """
    rows = signed.shape[0]
    blocks = signed.reshape(rows, -1, Q_BLOCK)
    parts = [scales.astype(np.float16)[..., None].view(np.uint8)]
    match quant_type:
        case "Q4_0":
            parts.append(_halves_packed((blocks + np.int8(8)).view(np.uint8)))
        case "Q5_0":
            codes = (blocks + np.int8(16)).view(np.uint8)
            parts += [
                np.packbits(codes >> np.uint8(4), axis=-1, bitorder="little"),
                _halves_packed(codes & np.uint8(15)),
            ]
        case _:
            parts.append(blocks.view(np.uint8))
    return np.concatenate(parts, axis=-1).reshape(rows, -1)


def _halves_packed(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Four-bit codes `[..., 32]` to bytes `[..., 16]`: the first sixteen in the low bits, the others above them."""
    return codes[..., :16] | codes[..., 16:] << np.uint8(4)
