"""Repacking loses nothing: every weight comes back from the tiles bit for bit."""

import gguf
import numpy as np
import pytest
from memra_kernels import native

from tests.kernels.native.stored_blocks import block_shape, dequantised, random_stored

_UNREAD = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
"""What no model file stores weights in: ggml's activations, integers and doubles."""


def test_every_type_that_weights_are_stored_in_has_a_layout():
    assert {kind.name for kind in gguf.GGMLQuantizationType} - _UNREAD == set(native.GGML_TYPES)


@pytest.mark.parametrize("quant_type", sorted(native.GGML_TYPES))
@pytest.mark.parametrize("rows", [37, 272])  # the most gives every entry of every grid
def test_every_stored_type_is_read_back_bit_for_bit(pool: native.ThreadPool, quant_type: str, rows: int):
    columns = 3 * max(block_shape(quant_type)[0], 32) + (0 if block_shape(quant_type)[0] > 1 else 6)
    stored = random_stored(quant_type, rows, columns)
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    try:
        weight = plan.weight(stored.reshape(-1), quant_type=quant_type, rows=rows, columns=columns)
        got = plan.unpack(weight)
    finally:
        plan.close()
    wanted = dequantised(stored, quant_type)
    assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("quant_type", sorted(native.GGML_TYPES))
def test_an_embedding_row_is_the_row_of_the_file(pool: native.ThreadPool, quant_type: str):
    columns, vocabulary = 512, 5
    stored = random_stored(quant_type, vocabulary, columns, seed=9, scale=0.1)
    plan = native.Plan(pool, variant="scalar", max_rows=vocabulary)
    identity = np.eye(columns, dtype=np.float32).reshape(-1).view(np.uint8)
    x = plan.buffer(columns)
    plan.cache(num_pages=1, layers=[native.CacheLayer(1, 16, 16)])
    plan.row(
        native.RowOp(
            kind="embed",
            out=x,
            stored=stored.reshape(-1),
            stored_type=quant_type,
            stored_row_bytes=stored.nbytes // vocabulary,
        )
    )
    plan.head(x, weight=plan.weight(identity, quant_type="F32", rows=columns, columns=columns))
    tokens = np.array([4, 0, 3, 1], np.int32)
    rows = np.arange(4, dtype=np.int32)
    got = plan.run(native.Batch(tokens, rows, np.zeros_like(rows), np.zeros((1, 1), np.int32), rows)).copy()
    plan.close()
    assert np.array_equal(got, dequantised(stored, quant_type)[tokens])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("quant_type", ["Q4_0", "Q4_1", "Q6_K", "F16", "IQ2_S", "IQ3_XXS", "TQ2_0", "Q1_0"])
def test_a_scale_that_is_no_number_is_refused_with_its_rows(pool: native.ThreadPool, quant_type: str, bad: float):
    elements, size = block_shape(quant_type)
    columns = 256
    stored = random_stored(quant_type, 20, columns, scale=0.1).reshape(20, columns // elements, size)
    offset = {"Q6_K": 208, "TQ2_0": 64}.get(quant_type, 0)
    stored[17, 0, offset : offset + 2] = np.array([bad], np.float16).view(np.uint8)
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    with pytest.raises(native.NativeError, match="rows 16 to 31"):
        plan.weight(stored.reshape(-1), quant_type=quant_type, rows=20, columns=columns)
    plan.close()


def test_data_of_the_wrong_size_is_refused(pool: native.ThreadPool):
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    with pytest.raises(native.NativeError, match="size"):
        plan.weight(np.zeros(17, np.uint8), quant_type="Q4_0", rows=1, columns=32)
    plan.close()
