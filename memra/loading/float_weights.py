"""Weights of eight- and four-bit floats with scales, as checkpoints for GPUs store them.

Trade: which stored codes and scales make which value, and in which GGML type that value is exact. Refuses to know names
and configurations. Called by `quantised_weights`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from memra.loading.number_formats import (
    E4M3,
    E8M0_NAN,
    are_powers_of_two,
    decode_e2m1,
    decode_e4m3,
    encode_bf16,
    encode_mxfp4,
    nibbles,
    read_numbers,
    scale_groups,
)

_SMALLEST_BF16 = -133
"""Exponent of the smallest positive bfloat16."""


@dataclass(frozen=True)
class Float8Weight:
    """FP8 e4m3fn codes, each multiplied by the scale of its rectangle.

    Exact: every product where scales are float16, bfloat16 or powers of two. A float32 scale of more digits gives the
    product rounded once to float32, which is how the checkpoint's own tools compute it. Held as BF16 where all scales
    are powers of two (or there are none), else as F32.

    Attributes:
        codes: F8_E4M3 `[rows, columns]`.
        scales: None, or any of `[]`, `[1]`, `[rows, 1]`, `[row blocks, column blocks]`.
        block: rows and columns that share a scale; the last block of each may be cut.
    """

    precision: ClassVar = "fp8"

    codes: StoredTensor
    scales: StoredTensor | None
    block: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """`(rows, columns)`."""
        return self.codes.shape

    @cached_property
    def quant_type(self) -> str:
        """BF16 or F32."""
        if self.scales is None:
            return "BF16"
        # e4m3: multiples of 2**-9 below 2**9, with four digits.
        is_exact = are_powers_of_two(read_numbers(self.scales), lowest=_SMALLEST_BF16 + 9, highest=127 - 9)
        return "BF16" if is_exact else "F32"

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows as BF16 or F32."""
        values = decode_e4m3(self.codes.data.reshape(self.shape)[begin:end])
        if self.scales is None:
            return encode_bf16(values)
        scales = read_numbers(self.scales)
        scales = scales.reshape((1, 1) if scales.ndim < 2 else scales.shape)  # noqa: PLR2004  (a matrix)
        by_row = scales[np.arange(begin, end) // self.block[0]]
        for at in range(by_row.shape[1]):
            values[:, at * self.block[1] : (at + 1) * self.block[1]] *= by_row[:, at : at + 1]
        return encode_bf16(values) if self.quant_type == "BF16" else values.view(np.uint8)

    def release(self) -> None:
        """Let go of the codes; scales are small."""
        self.codes.release()


@dataclass(frozen=True)
class NvFloat4Weight:
    """NVFP4: E2M1 codes, an E4M3 scale for each sixteen, and one float32 scale for all.

    Code times block scale is exact in six digits; the scale of the whole is applied to that in float32, rounded once.
    Held as BF16 where that scale is a power of two, else as F32: GGML's own NVFP4 has no place for it.

    Attributes:
        codes: U8 `[rows, columns / 2]`, low four bits first.
        scales: F8_E4M3 `[rows, columns / 16]`.
        overall: F32, one value.
        divides: values are divided by `overall` (compressed-tensors), not multiplied (ModelOpt).
    """

    precision: ClassVar = "nvfp4"

    codes: StoredTensor
    scales: StoredTensor
    overall: StoredTensor
    divides: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """`(rows, columns)`."""
        rows, packed = self.codes.shape
        return rows, packed * 2

    @cached_property
    def quant_type(self) -> str:
        """BF16 or F32."""
        # 0.5 * 2**-9 is the smallest step, 6 * 448 < 2**12 the bound; the other way round when divided.
        is_exact = are_powers_of_two(read_numbers(self.overall), lowest=-110, highest=110)
        return "BF16" if is_exact else "F32"

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows as BF16 or F32."""
        values = decode_e2m1(self.codes.data.reshape(self.codes.shape)[begin:end])
        scale_groups(values, E4M3[self.scales.data.reshape(self.scales.shape)[begin:end]])
        overall = read_numbers(self.overall).reshape(-1)[0]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # whoever uses the values refuses these
            values = (
                np.divide(values, overall, out=values) if self.divides else np.multiply(values, overall, out=values)
            )
        return encode_bf16(values) if self.quant_type == "BF16" else values.view(np.uint8)

    def release(self) -> None:
        """Let go of codes and scales."""
        self.codes.release()
        self.scales.release()


@dataclass(frozen=True, slots=True)
class MxFloat4Weight:
    """MXFP4: E2M1 codes and a power of two for each 32. The values are those of GGML's MXFP4, in another order of bits.

    Attributes:
        codes: U8 `[..., columns / 32, 16]` or `[rows, columns / 2]`, low four bits first.
        exponents: U8 or F8_E8M0 `[..., columns / 32]`.
    """

    codes: StoredTensor
    exponents: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading dimensions of the scales, and the columns."""
        return *self.exponents.shape[:-1], self.exponents.shape[-1] * 32

    @property
    def quant_type(self) -> str:
        """MXFP4, always."""
        return "MXFP4"

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows as MXFP4.

        Raises:
            CorruptFileError: a scale is NaN, which GGML's blocks cannot say.
        """
        columns = self.shape[-1]
        codes = nibbles(self.codes.data.reshape(-1, columns // 2)[begin:end])
        exponents = self.exponents.data.reshape(-1, columns // 32)[begin:end]
        if (exponents == E8M0_NAN).any():
            raise CorruptFileError(f"tensor {self.exponents.name!r} holds a scale that is NaN: fetch the file again")
        return encode_mxfp4(codes, exponents)

    def release(self) -> None:
        """Let go of codes and scales."""
        self.codes.release()
        self.exponents.release()
