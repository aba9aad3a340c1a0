"""Integer codes, zero points and scales of quantised weights, unpacked from how each tool stores them.

Trade: bits, their order and their axis. A weight of `columns` inputs and `rows` outputs comes out the same way whatever
the tool: `code - zero`, times `scale`. Refuses to know tensors' names and what becomes of the values. Called by
`integer_weights` through the protocol, built by `quantised_weights`.
"""

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memra.loading.checkpoint import StoredTensor
from memra.loading.number_formats import nibbles, read_integers, read_numbers

_AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""AWQ's "gemm" kernels: column n of eight lies in the nibble of this number, counted from the lowest bits."""
_Number = TypeVar("_Number", bound=np.generic)


class IntegerCodes(Protocol):
    """One weight's codes."""

    @property
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)`, rows being outputs."""
        ...

    @property
    def num_bits(self) -> int:
        """4 or 8; codes and zero points are unsigned."""
        ...

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """Group of each column, `[columns]`; None where groups are stretches of equal length."""
        ...

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of some rows, `[end - begin, columns]`."""
        ...

    def zeros(self, begin: int, end: int) -> NDArray[np.int16] | None:
        """Zero points, `[end - begin, groups]`; None where all are the middle, `2 ** (num_bits - 1)`."""
        ...

    def scales(self, begin: int, end: int) -> NDArray[np.float32]:
        """Scales, `[end - begin, groups]`."""
        ...

    def release(self) -> None:
        """Let go of what was read."""
        ...


@dataclass(frozen=True, slots=True)
class PackedCodes:
    """compressed-tensors "pack-quantized": codes along the columns of int32 words, zero points along the rows.

    Attributes:
        shape: of the weight; packed columns may be padded.
        num_bits: 4 or 8.
        packed: I32 `[rows, words]`.
        scale: `[rows, groups]`, or one for all.
        zero: I32 `[words of rows, groups]`, or None.
        groups: see `IntegerCodes`.
    """

    shape: tuple[int, int]
    num_bits: int
    packed: StoredTensor
    scale: StoredTensor
    zero: StoredTensor | None
    groups: NDArray[np.int64] | None = None

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of some rows."""
        words = read_integers(self.packed)[begin:end]
        return _unpacked(words, self.num_bits)[:, : self.shape[1]]

    def zeros(self, begin: int, end: int) -> NDArray[np.int16] | None:
        """Zero points of some rows."""
        if self.zero is None:
            return None
        per_word = 32 // self.num_bits
        first = begin // per_word
        words = read_integers(self.zero)[first : -(-end // per_word)]
        by_row = _unpacked(np.ascontiguousarray(words.T), self.num_bits).T
        return by_row[begin - first * per_word : end - first * per_word].astype(np.int16)

    def scales(self, begin: int, end: int) -> NDArray[np.float32]:
        """Scales of some rows."""
        return _rows_of_scales(self.scale, begin, end)

    def release(self) -> None:
        """Let go of the codes and scales."""
        self.packed.release()
        self.scale.release()


@dataclass(frozen=True, slots=True)
class Int8Codes:
    """compressed-tensors "int-quantized": signed bytes as they are.

    Attributes:
        stored: I8 `[rows, columns]`.
        scale: `[rows, groups]`, or one for all.
        zero: I8, shaped as `scale`, or None.
    """

    stored: StoredTensor
    scale: StoredTensor
    zero: StoredTensor | None
    num_bits: int = 8
    groups: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)`."""
        return cast("tuple[int, int]", self.stored.shape)

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of some rows, moved to be unsigned."""
        return self.stored.data.reshape(self.shape)[begin:end] ^ np.uint8(128)

    def zeros(self, begin: int, end: int) -> NDArray[np.int16] | None:
        """Zero points of some rows, moved as the codes are."""
        if self.zero is None:
            return None
        zeros = read_integers(self.zero).astype(np.int16) + np.int16(128)
        return _rows_of(zeros, begin, end)

    def scales(self, begin: int, end: int) -> NDArray[np.float32]:
        """Scales of some rows."""
        return _rows_of_scales(self.scale, begin, end)

    def release(self) -> None:
        """Let go of the codes and scales."""
        self.stored.release()
        self.scale.release()


@dataclass(frozen=True, slots=True)
class AwqCodes:
    """AWQ "gemm": the weight transposed, eight outputs to an int32 word in an order of its own.

    Attributes:
        packed: I32 `[columns, rows / 8]`.
        scale: `[groups, rows]`.
        zero: I32 `[groups, rows / 8]`, in the same order.
    """

    packed: StoredTensor
    scale: StoredTensor
    zero: StoredTensor
    num_bits: int = 4
    groups: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)` of the weight, outputs first."""
        columns, words = self.packed.shape
        return words * 8, columns

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of some rows."""
        return self._outputs(self.packed, begin, end)

    def zeros(self, begin: int, end: int) -> NDArray[np.int16]:
        """Zero points of some rows."""
        return self._outputs(self.zero, begin, end).astype(np.int16)

    def scales(self, begin: int, end: int) -> NDArray[np.float32]:
        """Scales of some rows."""
        return np.ascontiguousarray(read_numbers(self.scale)[:, begin:end].T)

    def release(self) -> None:
        """Let go of codes, scales and zero points."""
        for tensor in (self.packed, self.scale, self.zero):
            tensor.release()

    @staticmethod
    def _outputs(tensor: StoredTensor, begin: int, end: int) -> NDArray[np.uint8]:
        first = begin // 8
        words = np.ascontiguousarray(read_integers(tensor)[:, first : -(-end // 8)].T)
        found = np.empty((len(words) * 8, words.shape[1]), np.uint8)
        for output, nibble in enumerate(_AWQ_ORDER):
            octet = words.view(np.uint8)[:, nibble // 2 :: 4]
            found[output::8] = octet >> 4 if nibble % 2 else octet & 15
        return found[begin - first * 8 : end - first * 8]


@dataclass(frozen=True, slots=True)
class GptqCodes:
    """GPTQ: the weight transposed, inputs packed along the first axis, zero points along the outputs.

    Attributes:
        num_bits: 4 or 8.
        packed: I32 `[words of columns, rows]`.
        scale: `[groups, rows]`.
        zero: I32 `[groups, words of rows]`.
        zeros_are_one_less: format 1 stores the zero point minus one, modulo `2 ** num_bits`; format 2 as it is.
        groups: see `IntegerCodes`; given where the order of activations decided on the groups.
    """

    num_bits: int
    packed: StoredTensor
    scale: StoredTensor
    zero: StoredTensor
    zeros_are_one_less: bool
    groups: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)` of the weight, outputs first."""
        words, rows = self.packed.shape
        return rows, words * (32 // self.num_bits)

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of some rows."""
        words = np.ascontiguousarray(read_integers(self.packed)[:, begin:end].T)
        return _unpacked(words, self.num_bits)

    def zeros(self, begin: int, end: int) -> NDArray[np.int16]:
        """Zero points of some rows."""
        per_word = 32 // self.num_bits
        first = begin // per_word
        words = np.ascontiguousarray(read_integers(self.zero)[:, first : -(-end // per_word)])
        stored = _unpacked(words, self.num_bits)[:, begin - first * per_word : end - first * per_word]
        zeros = stored.T.astype(np.int16)
        return (zeros + 1) & (2**self.num_bits - 1) if self.zeros_are_one_less else zeros

    def scales(self, begin: int, end: int) -> NDArray[np.float32]:
        """Scales of some rows."""
        return np.ascontiguousarray(read_numbers(self.scale)[:, begin:end].T)

    def release(self) -> None:
        """Let go of codes, scales and zero points."""
        for tensor in (self.packed, self.scale, self.zero):
            tensor.release()


def _unpacked(words: NDArray[np.integer], num_bits: int) -> NDArray[np.uint8]:
    """Int32 words `[rows, words]` to codes `[rows, words * 32 / num_bits]`, lowest bits first."""
    octets = np.ascontiguousarray(words).view(np.uint8)  # little-endian, as the file
    return nibbles(octets) if num_bits == 4 else octets  # noqa: PLR2004  (the only other width is 8)


def _rows_of_scales(tensor: StoredTensor, begin: int, end: int) -> NDArray[np.float32]:
    return _rows_of(read_numbers(tensor), begin, end)


def _rows_of(values: NDArray[_Number], begin: int, end: int) -> NDArray[_Number]:
    """Rows of `[rows, groups]`; a single value stands for every row."""
    if values.size == 1:
        return np.broadcast_to(values.reshape(1, 1), (end - begin, 1))
    return values.reshape(values.shape[0], -1)[begin:end]
