"""Weights of four- and eight-bit integers, in the GGML type that says the same.

Trade: choosing between Q4_0, Q5_0, Q8_0 and F32 so that nothing is lost. Refuses to know how codes were packed. Called
by `quantised_weights`.

A value is `(code - zero) * scale`. GGML's blocks hold 32 signed integers and one float16, so a weight goes over exactly
where every scale is a float16 and groups are multiples of 32:

- four bits with all zero points in the middle: Q4_0;
- four bits with other zero points: `code - zero` is -15 to 15, which five bits hold: Q5_0. (Q4_1 would store
  `-zero * scale` as a float16, which rounds.)
- eight bits with all zero points in the middle: Q8_0.

All else is F32: `code - zero` has at most nine digits, so the product is exact for float16 and bfloat16 scales, and
rounded once for a float32 scale of more digits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from memra.loading.integer_codes import IntegerCodes
from memra.loading.number_formats import Q_BLOCK, are_halves, encode_integers

_FOUR_BITS: Final = 4
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True)
class IntegerWeight:
    """One weight as a `Conversion`."""

    source: IntegerCodes

    @property
    def precision(self) -> str:
        """As `memra.loading.precision` has it, whatever holds the codes."""
        return f"int{self.source.num_bits}"

    @property
    def shape(self) -> tuple[int, ...]:
        """`(rows, columns)`."""
        return self.source.shape

    @cached_property
    def quant_type(self) -> str:
        """Q4_0, Q5_0, Q8_0 or F32; reads scales and zero points."""
        rows, columns = self.source.shape
        scales = self.source.scales(0, rows)
        num_groups = scales.shape[1]
        is_blocked = self.source.groups is None and columns % (num_groups * Q_BLOCK) == 0
        if not is_blocked or not are_halves(scales):
            return "F32"
        zeros = self.source.zeros(0, rows)
        is_centred = zeros is None or bool((zeros == self._middle).all())
        if self.source.num_bits == _FOUR_BITS:
            return "Q4_0" if is_centred else "Q5_0"
        return "Q8_0" if is_centred else "F32"

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows in `quant_type`."""
        codes = self.source.codes(begin, end)
        zeros = self.source.zeros(begin, end)
        scales = self.source.scales(begin, end)
        if self.quant_type == "F32":
            signed = codes.astype(np.float32)
            signed -= self._middle if zeros is None else self._by_column(zeros)
            return (signed * self._by_column(scales)).view(np.uint8)
        num_blocks = self.source.shape[1] // Q_BLOCK
        by_block = np.repeat(scales, num_blocks // scales.shape[1], axis=1)
        middles = np.full(scales.shape, self._middle, np.uint8) if zeros is None else zeros.astype(np.uint8)
        grouped = codes.reshape(len(codes), scales.shape[1], -1) - middles[..., None]  # modulo 256, as int8 reads it
        return encode_integers(grouped.view(np.int8).reshape(codes.shape), by_block, self.quant_type)

    def release(self) -> None:
        """Let go of what was read."""
        self.source.release()

    @property
    def _middle(self) -> int:
        return 1 << (self.source.num_bits - 1)

    def _by_column(self, by_group: NDArray[_Number]) -> NDArray[_Number]:
        """Values `[rows, groups]` spread over the columns."""
        columns = self.source.shape[1]
        groups = self.source.groups
        if groups is None:
            groups = np.arange(columns) // (columns // by_group.shape[1])
        return by_group[:, groups]
