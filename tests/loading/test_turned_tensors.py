"""Matrices that are stored with rows and columns exchanged, or by head, and the columns of a table."""

import numpy as np
import pytest
from numpy.typing import NDArray

from memra.loading.checkpoint import StoredTensor
from memra.loading.gguf_heads import with_heads_joined
from memra.loading.huggingface.tensor_edits import take_columns, take_expert_columns

VALUES = np.arange(3 * 4 * 10, dtype=np.float32).reshape(3, 4, 10)


def _stored(values: NDArray[np.generic], quant_type: str, name: str = "t") -> StoredTensor:
    return StoredTensor(name, values.shape, quant_type, np.ascontiguousarray(values).reshape(-1).view(np.uint8))


@pytest.mark.parametrize(("quant_type", "dtype"), [("F32", np.float32), ("F16", np.float16)])
def test_columns_of_experts_become_rows(quant_type: str, dtype: type):
    taken = take_expert_columns(_stored(VALUES.astype(dtype), quant_type), "rows", range(1, 10, 2))
    wanted = VALUES[:, :, 1::2].transpose(0, 2, 1)
    assert (taken.name, taken.shape, taken.quant_type) == ("rows", (3, 5, 4), quant_type)
    np.testing.assert_array_equal(taken.dequantise(), wanted)
    np.testing.assert_array_equal(taken.rows(3, 12), wanted.reshape(15, 4)[3:12])  # over the ends of two experts


def test_columns_of_a_table_are_taken_in_their_order():
    taken = take_columns(_stored(VALUES[0], "F32"), "columns", range(8, 0, -3))
    assert taken.shape == (4, 3)
    np.testing.assert_array_equal(taken.dequantise(), VALUES[0][:, [8, 5, 2]])


def test_columns_of_quantised_blocks_are_refused():
    blocks = StoredTensor("t", (1, 1, 32), "Q8_0", np.zeros(34, np.uint8))
    with pytest.raises(ValueError, match="single values of Q8_0 cannot be taken"):
        take_expert_columns(blocks, "rows", range(4)).rows(0, 4)


def test_heads_are_joined_to_matrices_and_other_tensors_stay():
    keys, values = (_stored(VALUES, "F32", f"blk.0.attn_{part}_b.weight") for part in ("k", "v"))
    other = _stored(VALUES, "F32", "blk.0.ffn_up_exps.weight")
    joined = with_heads_joined({tensor.name: tensor for tensor in (keys, values, other)})
    assert joined[other.name] is other
    np.testing.assert_array_equal(joined[values.name].dequantise(), VALUES.reshape(12, 10))
    np.testing.assert_array_equal(joined[keys.name].dequantise(), VALUES.transpose(0, 2, 1).reshape(30, 4))
    np.testing.assert_array_equal(joined[keys.name].rows(8, 23), VALUES.transpose(0, 2, 1).reshape(30, 4)[8:23])
