"""Few-row and many-row kernels, every instruction set and any batch give the same bits, near the exact product."""

from dataclasses import dataclass

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from tests.kernels.native.stored_blocks import random_stored

_ROWS, _COLUMNS, _VOCABULARY = 40, 512, 16
_QUANTISED = sorted(set(native.GGML_TYPES) - native.FLOAT_TYPES)


@dataclass
class OneMatrix:
    """A plan whose logits are one matrix times rows of an embedding table."""

    plan: native.Plan
    weight: int
    table: NDArray[np.float32]

    def outputs(self, tokens: list[int], *, many_from: int = 1000) -> NDArray[np.float32]:
        self.plan.set_many_rows_from(many_from)
        ids = np.array(tokens, np.int32)
        count = np.arange(len(tokens), dtype=np.int32)
        batch = native.Batch(ids, count, np.zeros_like(ids), np.zeros((1, 8), np.int32), count)
        return self.plan.run(batch).copy()


def one_matrix(pool: native.ThreadPool, variant: str, quant_type: str) -> OneMatrix:
    plan = native.Plan(pool, variant=variant, max_rows=64)
    stored = random_stored(quant_type, _ROWS, _COLUMNS, seed=3, scale=0.01)
    weight = plan.weight(stored.reshape(-1), quant_type=quant_type, rows=_ROWS, columns=_COLUMNS)
    table = np.random.default_rng(5).standard_normal((_VOCABULARY, _COLUMNS)).astype(np.float32)
    x = plan.buffer(_COLUMNS, quants=True)
    plan.cache(num_pages=1, layers=[(1, 16)])
    raw = table.reshape(-1).view(np.uint8)
    plan.row(native.RowOp(kind="embed", out=x, stored=raw, stored_type="F32", stored_row_bytes=4 * _COLUMNS))
    plan.row(native.RowOp(kind="quantise", x=x))
    plan.head(x, weight=weight)
    return OneMatrix(plan, weight, table)


@pytest.mark.parametrize("quant_type", sorted(native.GGML_TYPES))
def test_all_kernels_and_variants_agree_to_the_bit(pool: native.ThreadPool, quant_type: str):
    tokens = [i * 5 % _VOCABULARY for i in range(33)]
    wanted: NDArray[np.float32] | None = None
    for variant in native.usable_variants():
        matrix = one_matrix(pool, variant, quant_type)
        single = np.concatenate([matrix.outputs([token]) for token in tokens])
        wanted = single if wanted is None else wanted
        assert np.array_equal(single, wanted), variant
        for count in (2, 3, 5, 8, 9, 16, 33):
            assert np.array_equal(matrix.outputs(tokens[:count]), wanted[:count]), (variant, count)
            assert np.array_equal(matrix.outputs(tokens[:count], many_from=1), wanted[:count]), (variant, count)
        matrix.plan.close()


@pytest.mark.parametrize("quant_type", _QUANTISED)
def test_the_error_is_that_of_int8_activations(pool: native.ThreadPool, quant_type: str):
    matrix = one_matrix(pool, native.usable_variants()[0], quant_type)
    weights = matrix.plan.unpack(matrix.weight).astype(np.float64)
    got = matrix.outputs(list(range(_VOCABULARY)))
    # What the activations become: 32 at a time, to the nearest of 255 steps.
    blocks = matrix.table.reshape(_VOCABULARY, -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    rounded = (np.rint(blocks / scale) * scale).reshape(_VOCABULARY, -1).astype(np.float64)
    wanted = rounded @ weights.T
    # Float32 sums of 16 blocks: far below one step of an activation, which would show as 1e-3.
    tolerance = 2e-5 * (np.abs(rounded) @ np.abs(weights).T)
    assert (np.abs(got - wanted) <= tolerance).all()
    matrix.plan.close()


@pytest.mark.parametrize("quant_type", sorted(native.FLOAT_TYPES))
def test_float_weights_meet_float_activations(pool: native.ThreadPool, quant_type: str):
    matrix = one_matrix(pool, native.usable_variants()[0], quant_type)
    weights = matrix.plan.unpack(matrix.weight).astype(np.float64)
    wanted = matrix.table.astype(np.float64) @ weights.T
    tolerance = 1e-5 * (np.abs(matrix.table).astype(np.float64) @ np.abs(weights).T)
    assert (np.abs(matrix.outputs(list(range(_VOCABULARY))) - wanted) <= tolerance).all()
    matrix.plan.close()
