"""Repacking loses nothing: every weight comes back from the tiles bit for bit."""

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from memra_kernels import native

from tests.kernels.native.stored_blocks import block_shape, random_stored


@pytest.mark.parametrize("quant_type", sorted(native.GGML_TYPES))
@pytest.mark.parametrize("rows", [16, 37])
def test_every_stored_type_is_read_back_bit_for_bit(pool: native.ThreadPool, quant_type: str, rows: int):
    columns = 3 * max(block_shape(quant_type)[0], 32) + (0 if block_shape(quant_type)[0] > 1 else 6)
    stored = random_stored(quant_type, rows, columns)
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    try:
        weight = plan.weight(stored.reshape(-1), quant_type=quant_type, rows=rows, columns=columns)
        got = plan.unpack(weight)
    finally:
        plan.close()
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = dequantize(stored, gguf.GGMLQuantizationType[quant_type]).astype(np.float32).reshape(rows, columns)
    assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("quant_type", ["Q4_0", "Q4_1", "Q6_K", "F16"])
def test_a_scale_that_is_no_number_is_refused_with_its_rows(pool: native.ThreadPool, quant_type: str, bad: float):
    elements, size = block_shape(quant_type)
    columns = 256
    stored = random_stored(quant_type, 20, columns, scale=0.1).reshape(20, columns // elements, size)
    offset = 208 if quant_type == "Q6_K" else 0
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
