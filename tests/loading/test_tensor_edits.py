"""Tensors made of others: which rows they hold, and how often their sources are made."""

import numpy as np
from numpy.typing import NDArray

from memra.loading.converted_tensor import CHUNK_VALUES, ConvertedTensor
from memra.loading.huggingface.tensor_edits import take_expert_rows, take_rows


class _CountedConversion:
    """Float32 values that say how often all of them were made; a `Conversion`."""

    quant_type = "F32"

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.shape = values.shape
        self.num_rows_made = 0
        self._rows = values.reshape(-1, values.shape[-1])

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        self.num_rows_made += end - begin
        return self._rows[begin:end].view(np.uint8)

    def release(self) -> None:
        """Values in memory stay."""


def _values(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_rows_are_taken_in_the_order_that_is_asked_for():
    values = _values(6, 4)
    tensor = ConvertedTensor("source", _CountedConversion(values))
    taken = take_rows(tensor, "taken", np.array([5, 0, 3]))
    assert (taken.name, taken.shape, taken.quant_type) == ("taken", (3, 4), "F32")
    np.testing.assert_array_equal(taken.dequantise(), values[[5, 0, 3]])


def test_the_same_rows_are_taken_of_every_expert():
    values = _values(3, 6, 4)
    taken = take_expert_rows(ConvertedTensor("source", _CountedConversion(values)), "taken", range(2, 5))
    np.testing.assert_array_equal(taken.dequantise(), values[:, 2:5])
    np.testing.assert_array_equal(taken.rows(2, 5), values[:, 2:5].reshape(9, 4)[2:5])


def test_a_converted_source_is_made_once_until_it_is_released():
    num_rows = 4 * CHUNK_VALUES // 256
    source = _CountedConversion(_values(num_rows, 256))
    taken = take_rows(ConvertedTensor("source", source), "taken", range(num_rows - 1, -1, -1))
    first = taken.dequantise()
    np.testing.assert_array_equal(taken.dequantise(), first)
    assert source.num_rows_made == num_rows
    taken.release()
    np.testing.assert_array_equal(taken.rows(0, 8), first[:8])
    assert source.num_rows_made == 2 * num_rows
