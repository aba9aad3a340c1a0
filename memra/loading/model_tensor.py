"""What one tensor of an opened model offers, however its file stores it.

Trade: the protocol that file readers fulfil, and the step from GGML's bytes to float32 that they share. Refuses to know
files. Called by everything in loading that hands tensors on.
"""

import math
from typing import Protocol, Self, cast

import gguf
import gguf.quants
import numpy as np
from numpy.typing import NDArray

from memra.errors import UnsupportedModelError

FLOAT_TYPES = frozenset({"F32", "F16", "BF16"})
"""GGML types that hold one number per value."""


class ModelTensor(Protocol):
    """One tensor, in GGML's terms; nothing is computed before `data`, `dequantise` or `rows` is asked for."""

    @property
    def name(self) -> str:
        """Name in GGUF's terms, such as `blk.0.attn_q.weight`."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Outermost first: `(rows, columns)` for a matrix."""
        ...

    @property
    def quant_type(self) -> str:
        """GGML type name such as `Q4_K` or `F32`."""
        ...

    @property
    def num_bytes(self) -> int:
        """Size of `data`, known without making it."""
        ...

    @property
    def data(self) -> NDArray[np.uint8]:
        """The values as `quant_type` lays them out, uint8 `[num_bytes]`."""
        ...

    def dequantise(self) -> NDArray[np.float32]:
        """All values as a new float32 array in `shape`."""
        ...

    def rows(self, begin: int, end: int) -> NDArray[np.float32]:
        """Values of some rows, float32 `[end - begin, columns]`; rows are counted over all leading dimensions."""
        ...

    def release(self) -> None:
        """Say that the stored bytes have been read: the system may take their memory back."""
        ...

    def renamed(self, name: str) -> Self:
        """The same tensor under another name."""
        ...


def bytes_per_row(columns: int, quant_type: str) -> int | None:
    """Bytes that one row of `columns` values takes, or None where the blocks of the type do not fit the row.

    Block and type sizes are those of ggml, as the `gguf` package lists them.
    """
    block_size, type_size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    if columns % block_size:
        return None
    return columns // block_size * type_size


def num_rows(shape: tuple[int, ...]) -> int:
    """Rows of a tensor: the product of all dimensions but the last."""
    return math.prod(shape[:-1])


def dequantised(data: NDArray[np.uint8], shape: tuple[int, ...], quant_type: str, *, name: str) -> NDArray[np.float32]:
    """GGML's bytes as a new float32 array in `shape`.

    Raises:
        ValueError: the bytes do not hold so many values.
        UnsupportedModelError: the `gguf` package cannot dequantise this type.
    """
    row_bytes = bytes_per_row(shape[-1], quant_type)
    if row_bytes is None or data.size != num_rows(shape) * row_bytes:
        raise ValueError(f"{name}: {data.size} bytes do not hold {shape} values of {quant_type}")
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # a damaged scale is the caller's finding, not a warning
            values = gguf.quants.dequantize(data.reshape(-1, row_bytes), gguf.GGMLQuantizationType[quant_type])
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"tensor {name!r} is stored as {quant_type}, which cannot be dequantised: "
            "convert the model to a common type such as Q4_K, Q8_0 or F16"
        ) from error
    values = cast("NDArray[np.float32]", values).reshape(shape)
    return values if values.flags.writeable else values.copy()


def check_dequantisable(quant_type: str, *, name: str) -> None:
    """Raise what `dequantised` would raise for the type; nothing is read.

    Raises:
        UnsupportedModelError: the `gguf` package cannot dequantise it.
    """
    block_size, type_size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    dequantised(np.zeros(type_size, np.uint8), (block_size,), quant_type, name=name)
