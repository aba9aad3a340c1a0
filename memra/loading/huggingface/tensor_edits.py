"""Tensors made of others without reading them: stacked experts, and rows taken in another order.

Trade: `Conversion`s that hand on stored bytes, whatever their type. Refuses to know families and names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.model_tensor import ModelTensor, bytes_per_row, num_rows


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal tensors one behind the other, as a tensor of one more dimension; a `Conversion`."""

    parts: Sequence[ModelTensor]

    @classmethod
    def of(cls, name: str, parts: Mapping[int, ModelTensor], path: Path) -> "Stack":
        """Stack numbered tensors in the order of their numbers.

        Raises:
            CorruptFileError: a number is missing, or the tensors differ in shape or type.
        """
        if sorted(parts) != list(range(len(parts))):
            raise CorruptFileError(f"{path}: lacks one of the experts of {name}: fetch the weights again")
        ordered = [parts[number] for number in range(len(parts))]
        if len({(tuple(part.shape), part.quant_type) for part in ordered}) > 1:
            raise CorruptFileError(f"{path}: the experts of {name} differ in shape or type: fetch the weights again")
        return cls(ordered)

    @property
    def shape(self) -> tuple[int, ...]:
        """`[parts, ...]`."""
        return (len(self.parts), *self.parts[0].shape)

    @property
    def quant_type(self) -> str:
        """That of the parts."""
        return self.parts[0].quant_type

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end`, counted over all parts."""
        height = num_rows(self.parts[0].shape)
        pieces = []
        for number in range(begin // height, (end - 1) // height + 1):
            rows = _rows_of(self.parts[number])
            pieces.append(rows[max(begin - number * height, 0) : end - number * height])
        return np.concatenate(pieces)

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        for part in self.parts:
            part.release()


class _KeptRows:
    """The stored bytes of one tensor, from the first look until they are released; several threads may look.

    A source that is itself converted would else be converted anew for every few rows.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: NDArray[np.uint8] | None = None

    def of(self, tensor: ModelTensor) -> NDArray[np.uint8]:
        """uint8 `[rows, bytes per row]`."""
        with self._lock:
            if self._rows is None:
                self._rows = _rows_of(tensor)
            return self._rows

    def release(self) -> None:
        """Forget them."""
        with self._lock:
            self._rows = None


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Some rows of a tensor, in some order: a fused matrix cut, heads put in another order; a `Conversion`.

    Attributes:
        order: int64 `[rows of the result]`, rows of `source`.
    """

    source: ModelTensor
    order: NDArray[np.int64]
    shape: tuple[int, ...]
    _kept: _KeptRows = field(default_factory=_KeptRows, repr=False, compare=False)

    @property
    def quant_type(self) -> str:
        """That of the source."""
        return self.source.quant_type

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end` of the result."""
        return self._kept.of(self.source)[self.order[begin:end]]

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self._kept.release()
        self.source.release()


@dataclass(frozen=True, slots=True)
class Transposed:
    """Some columns of each matrix of a tensor as its rows, in some order; a `Conversion`.

    Attributes:
        source: `[experts, K, N]`, of a type with one number per value.
        columns: int64 `[rows of the result]`, columns of `source`.
    """

    source: ModelTensor
    columns: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """`[experts, rows, K]`."""
        num_experts, width, _ = self.source.shape
        return num_experts, len(self.columns), width

    @property
    def quant_type(self) -> str:
        """That of the source."""
        return self.source.quant_type

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end`, counted over all experts."""
        height, values = len(self.columns), _values_of(self.source)
        pieces = []
        for expert in range(begin // height, (end - 1) // height + 1):
            columns = self.columns[max(begin - expert * height, 0) : end - expert * height]
            pieces.append(values[expert][:, columns].transpose(1, 0, 2).reshape(len(columns), -1))
        return np.concatenate(pieces)

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self.source.release()


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """Some columns of a matrix, in some order; a `Conversion`.

    Attributes:
        source: `[rows, columns]`, of a type with one number per value.
        columns: int64 `[columns of the result]`, columns of `source`.
    """

    source: ModelTensor
    columns: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """`[rows, columns]`."""
        return self.source.shape[0], len(self.columns)

    @property
    def quant_type(self) -> str:
        """That of the source."""
        return self.source.quant_type

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end` of the result."""
        return _values_of(self.source)[begin:end, self.columns].reshape(end - begin, -1)

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self.source.release()


def take_expert_rows(tensor: ModelTensor, name: str, rows: range) -> ModelTensor:
    """The same rows of every expert of a stack, as a stack of its own; nothing is read.

    Args:
        tensor: `[experts, rows, columns]`.
        name: of the result.
        rows: which rows of an expert.
    """
    num_experts, height, columns = tensor.shape
    order = np.arange(num_experts)[:, None] * height + np.asarray(rows)
    return ConvertedTensor(name, RowOrder(tensor, order.reshape(-1), (num_experts, len(rows), columns)))


def take_expert_columns(tensor: ModelTensor, name: str, order: range) -> ModelTensor:
    """The same columns of every expert's matrix as rows, in an order: matrices stored inputs first; nothing is read.

    Args:
        tensor: `[experts, columns, rows]`.
        name: of the result, `[experts, len(order), columns]`.
        order: which rows, as they are when transposed.
    """
    return ConvertedTensor(name, Transposed(tensor, np.asarray(order, np.int64)))


def take_columns(tensor: ModelTensor, name: str, order: range) -> ModelTensor:
    """Columns of a matrix in an order, as a tensor of its own; nothing is read.

    Args:
        tensor: `[rows, columns]`, of a type with one number per value.
        name: of the result.
        order: which columns.
    """
    return ConvertedTensor(name, ColumnOrder(tensor, np.asarray(order, np.int64)))


def take_rows(tensor: ModelTensor, name: str, order: NDArray[np.int64] | range) -> ModelTensor:
    """Rows of a matrix, or elements of a vector, in an order, as a tensor of its own; nothing is read.

    Args:
        tensor: `[rows, columns]` or `[rows]`.
        name: of the result.
        order: which rows.
    """
    rows = np.asarray(order, np.int64)
    if len(tensor.shape) == 1:
        values = np.ascontiguousarray(tensor.dequantise()[rows], np.float32)
        return StoredTensor(name, values.shape, "F32", values.view(np.uint8))
    return ConvertedTensor(name, RowOrder(tensor, rows, (len(rows), *tensor.shape[1:])))


def _rows_of(tensor: ModelTensor) -> NDArray[np.uint8]:
    """The stored bytes, uint8 `[rows, bytes per row]`."""
    row_bytes = bytes_per_row(tensor.shape[-1], tensor.quant_type)
    if row_bytes is None:
        raise ValueError(f"{tensor.name}: rows of {tensor.shape[-1]} values have no layout as {tensor.quant_type}")
    return tensor.data.reshape(-1, row_bytes)


def _values_of(tensor: ModelTensor) -> NDArray[np.uint8]:
    """The stored bytes value by value, uint8 `[..., bytes per value]`."""
    value_bytes = bytes_per_row(1, tensor.quant_type)
    if value_bytes is None:
        raise ValueError(f"{tensor.name}: single values of {tensor.quant_type} cannot be taken")
    return tensor.data.reshape(*tensor.shape, value_bytes)
