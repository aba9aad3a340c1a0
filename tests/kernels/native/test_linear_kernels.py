"""Few-row and many-row kernels, every instruction set and any batch give the same bits, near the exact product."""

from dataclasses import dataclass

import numpy as np
import pytest
from memra_kernels import build_native, native
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

    def outputs(
        self, tokens: list[int], *, many_from: int = 1000, places: list[int] | None = None
    ) -> NDArray[np.float32]:
        """The logits of the rows at `places`, or of all."""
        self.plan.set_many_rows_from(many_from)
        ids = np.array(tokens, np.int32)
        count = np.arange(len(tokens), dtype=np.int32)
        wanted = count if places is None else np.array(places, np.int32)
        batch = native.Batch(ids, count, np.zeros_like(ids), np.zeros((1, 8), np.int32), wanted)
        return self.plan.run(batch).copy()


def one_matrix(pool: native.ThreadPool, variant: str, quant_type: str, *, columns: int = _COLUMNS) -> OneMatrix:
    plan = native.Plan(pool, variant=variant, max_rows=64)
    stored = random_stored(quant_type, _ROWS, columns, seed=3, scale=0.01)
    weight = plan.weight(stored.reshape(-1), quant_type=quant_type, rows=_ROWS, columns=columns)
    table = np.random.default_rng(5).standard_normal((_VOCABULARY, columns)).astype(np.float32)
    # Extreme activations: a row of zeros, and one whose int8 values are all 127 or -127.
    table[0], table[1] = 0, np.where(table[1] < 0, -1, 1)
    x = plan.buffer(columns, quants=True)
    plan.cache(num_pages=1, layers=[native.CacheLayer(1, 16, 16)])
    raw = table.reshape(-1).view(np.uint8)
    plan.row(native.RowOp(kind="embed", out=x, stored=raw, stored_type="F32", stored_row_bytes=4 * columns))
    plan.row(native.RowOp(kind="quantise", x=x))
    plan.head(x, weight=weight)
    return OneMatrix(plan, weight, table)


def _places_of(num_rows: int) -> list[list[int]]:
    """Output rows that are not one after the other: every second, backwards, one row again and again, a gap, mixed."""
    rows = list(range(num_rows))
    mixed = np.random.default_rng(9).permutation(num_rows).tolist()
    return [rows[::2], rows[::-1], [3] * num_rows, rows[:9] + rows[10:], mixed]


@pytest.mark.parametrize("variant", build_native.variant_names())
@pytest.mark.parametrize("quant_type", sorted(native.GGML_TYPES))
def test_all_kernels_and_variants_agree_to_the_bit(pool: native.ThreadPool, quant_type: str, variant: str):
    if variant not in native.usable_variants():
        pytest.skip(f"this processor does not run {variant}")
    tokens = [i * 5 % _VOCABULARY for i in range(40)]
    scalar = one_matrix(pool, "scalar", quant_type)
    wanted = np.concatenate([scalar.outputs([token]) for token in tokens])
    matrix = one_matrix(pool, variant, quant_type)
    for count in range(1, 41):
        assert _equal_bits(matrix.outputs(tokens[:count]), wanted[:count]), count
        assert _equal_bits(matrix.outputs(tokens[:count], many_from=1), wanted[:count]), count
    for places in _places_of(len(tokens)):
        for many_from in (1, 1000):
            got = matrix.outputs(tokens, many_from=many_from, places=places)
            assert _equal_bits(got, wanted[places]), (places, many_from)
    scalar.plan.close()
    matrix.plan.close()


@pytest.mark.parametrize("quant_type", ["Q4_0", "Q4_K", "Q6_K", "Q8_0"])
def test_a_row_of_many_chunks_has_the_same_bits_from_every_variant(pool: native.ThreadPool, quant_type: str):
    tokens = [i * 5 % _VOCABULARY for i in range(25)]
    wanted: NDArray[np.float32] | None = None
    for variant in native.usable_variants():
        matrix = one_matrix(pool, variant, quant_type, columns=1792)  # three whole chunks of 512 and a half one
        for many_from in (1, 1000):
            got = matrix.outputs(tokens, many_from=many_from)
            wanted = got if wanted is None else wanted
            assert _equal_bits(got, wanted), (variant, many_from)
        matrix.plan.close()


def _equal_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("quant_type", _QUANTISED)
def test_the_error_is_that_of_int8_activations(pool: native.ThreadPool, quant_type: str):
    matrix = one_matrix(pool, native.usable_variants()[0], quant_type)
    weights = matrix.plan.unpack(matrix.weight).astype(np.float64)
    got = matrix.outputs(list(range(_VOCABULARY)))
    # What the activations become: 32 at a time, to the nearest of 255 steps.
    blocks = matrix.table.reshape(_VOCABULARY, -1, 32)
    scale = np.maximum(np.abs(blocks).max(-1, keepdims=True), np.float32(1e-30)) / np.float32(127)
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
