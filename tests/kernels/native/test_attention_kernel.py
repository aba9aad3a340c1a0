"""Attention over pages: near the exact answer, and the same bits however its rows were cut and its threads divided."""

from dataclasses import dataclass
from itertools import cycle, islice, pairwise, product

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from tests.kernels.native.one_attention import OneAttention, Part, Shape, tokens_of

KV_TYPES = tuple(native.KV_TYPES)
HEAD_DIMS = (16, 64, 80, 96, 112, 128, 192, 256, 512)
FEATURES: dict[str, dict[str, float]] = {
    "full": {},
    "window": {"window": 100},
    "softcap": {"softcap": 5.0},
    "sinks": {"sinks": True},
    "chunk": {"chunk": 96},
    "chunk and window": {"chunk": 96, "window": 50},
}
BIDIRECTIONAL: dict[str, dict[str, float]] = {
    "bidirectional": {"causal": False},
    "bidirectional window": {"causal": False, "window": 100},
}
GROUPS = {1: (2, 2), 3: (6, 2), 8: (8, 1)}
"""Query heads and kv heads, by how many of the former share one of the latter."""


@dataclass(frozen=True)
class Case:
    """One of the combinations that are tested."""

    dim: int
    kv_type: str
    feature: str
    group: int

    @property
    def shape(self) -> Shape:
        features = (FEATURES | BIDIRECTIONAL)[self.feature]
        return Shape(*GROUPS[self.group], self.dim, kv_type=self.kv_type, **features)  # type: ignore[arg-type]


def _causal_cases() -> list[Case]:
    """Every head size with every type once, dealt so that every feature meets every group and every type."""
    features, groups, count = list(FEATURES), list(GROUPS), len(FEATURES)
    return [
        Case(dim, kv_type, features[n % count], groups[(n + n // count) % len(groups)])
        for n, (kv_type, dim) in enumerate(product(KV_TYPES, HEAD_DIMS))
    ]


def _bidirectional_cases() -> list[Case]:
    """Every head size once; either feature meets every group and type."""
    dealt = islice(cycle(product(GROUPS, KV_TYPES, BIDIRECTIONAL)), len(HEAD_DIMS) + 3)
    return [Case(dim, kv, feature, group) for dim, (group, kv, feature) in zip(cycle(HEAD_DIMS), dealt, strict=False)]


CAUSAL, ENCODER = _causal_cases(), _bidirectional_cases()
SHAPES = [
    Shape(3, 1, 64),
    Shape(9, 3, 64, kv_type="q8_0"),
    Shape(7, 1, 64, window=100),
    Shape(4, 2, 80, kv_type="q8_0", sinks=True),
    Shape(4, 4, 96),
    Shape(8, 2, 128, softcap=5.0),
    Shape(8, 2, 112, window=70, softcap=5.0, sinks=True, kv_type="q8_0"),
    Shape(4, 1, 256, window=300),
    Shape(4, 2, 192, value_dim=128),
    Shape(4, 4, 64, value_dim=80, kv_type="q8_0", sinks=True),
    Shape(6, 2, 64, chunk=96),
    Shape(4, 1, 80, chunk=300, window=70, kv_type="q8_0", sinks=True),
]


def test_the_cases_cover_every_size_and_let_the_rest_meet_in_pairs():
    assert {(case.dim, case.kv_type) for case in CAUSAL} == set(product(HEAD_DIMS, KV_TYPES))
    assert {case.dim for case in ENCODER} == set(HEAD_DIMS)
    for cases, features in ((CAUSAL, FEATURES), (ENCODER, BIDIRECTIONAL)):
        assert {(case.feature, case.group) for case in cases} == set(product(features, GROUPS))
        assert {(case.feature, case.kv_type) for case in cases} == set(product(features, KV_TYPES))
        assert {(case.group, case.kv_type) for case in cases} == set(product(GROUPS, KV_TYPES))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_answer_is_near_the_exact_one(pool: native.ThreadPool, shape: Shape):
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    tokens = tokens_of(560)
    got = attention.run([Part(tokens, 0, range(9))])
    assert np.abs(got - attention.exact(tokens)).max() < 2e-5  # values are of order 1
    attention.plan.close()


@pytest.mark.parametrize("case", [*CAUSAL, *ENCODER], ids=str)
def test_every_head_size_and_feature_is_near_the_exact_answer(pool: native.ThreadPool, case: Case):
    tokens = tokens_of(300)
    attention = OneAttention(pool, case.shape, native.usable_variants()[0], 5)
    got = attention.run([Part(tokens, 0, range(5))])
    assert np.abs(got - attention.exact(tokens)).max() < 2e-5
    # Against keys and values that were never rounded: float16 keeps 11 bits and int8 keeps 8, of values of order 1,
    # and rows that see few keys have little over which the errors could cancel.
    error = np.sqrt(np.mean((got - attention.exact(tokens, stored=False)) ** 2))
    assert error < (2e-4 if case.kv_type == "f16" else 6e-3)
    attention.plan.close()


@pytest.mark.parametrize("case", ENCODER, ids=str)
def test_no_company_thread_or_variant_changes_a_bit_where_all_see_all(case: Case):
    first, second = Part(tokens_of(290), 0, range(5)), Part(tokens_of(70, seed=3), 0, range(5, 7))
    wanted: list[NDArray[np.float32]] = []
    for variant, num_threads in [("scalar", 1), *((name, 3) for name in native.usable_variants())]:
        pool = native.ThreadPool(num_threads)
        attention = OneAttention(pool, case.shape, variant, num_pages=7)
        alone = [attention.run([part]) for part in (first, second)]
        wanted = wanted or alone
        assert np.array_equal(np.concatenate(alone), np.concatenate(wanted)), variant
        assert np.array_equal(attention.run([first, second]), np.concatenate(wanted)), variant
        assert np.array_equal(attention.run([second, first]), np.concatenate(wanted[::-1])), variant
        attention.plan.close()
        pool.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_cut_gives_the_same_bits_and_pages(pool: native.ThreadPool, shape: Shape):
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    tokens = tokens_of(560)
    wanted = attention.run([Part(tokens, 0, range(9))])
    pages = attention.pages(range(9))
    for number, cuts in enumerate(([0, 1, 64, 100, 333, 560], [0, 255, 256, 257, 300, 559, 560])):
        table = range(9 + 9 * number, 18 + 9 * number)
        parts = [attention.run([Part(tokens[a:b], a, table)]) for a, b in pairwise(cuts)]
        assert np.array_equal(np.concatenate(parts), wanted)
        assert attention.pages(table) == pages
    attention.plan.close()


@pytest.mark.parametrize("shape", [SHAPES[at] for at in (1, 2, 5, 6, 11)], ids=str)
def test_threads_and_variants_give_the_same_bits(shape: Shape):
    tokens = tokens_of(300)
    wanted: NDArray[np.float32] | None = None
    for variant in native.usable_variants():
        for num_threads in (1, 2, 4):
            pool = native.ThreadPool(num_threads)
            attention = OneAttention(pool, shape, variant, num_pages=5)
            got = np.concatenate(
                [
                    attention.run([Part(tokens[:290], 0, range(5))]),
                    attention.run_in_chunks(Part(tokens[290:], 290, range(5)), 1),
                ]
            )
            wanted = got if wanted is None else wanted
            assert np.array_equal(got, wanted), (variant, num_threads)
            attention.plan.close()
            pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", CAUSAL, ids=str)
def test_no_cut_company_thread_or_variant_changes_a_bit(case: Case):
    tokens, pages = tokens_of(290), range(5)
    seen: list[tuple[NDArray[np.float32], list[bytes]]] = []
    for variant, num_threads in [("scalar", 1), *((name, 3) for name in native.usable_variants())]:
        pool = native.ThreadPool(num_threads)
        attention = OneAttention(pool, case.shape, variant, num_pages=30)
        seen.append((attention.run([Part(tokens, 0, pages)]), attention.pages(pages)))
        assert np.array_equal(seen[-1][0], seen[0][0]), variant
        assert seen[-1][1] == seen[0][1], variant
        if variant != "scalar":
            _check_cuts_and_company(attention, tokens, *seen[0])
        attention.plan.close()
        pool.close()


def _check_cuts_and_company(
    attention: OneAttention, tokens: NDArray[np.int32], wanted: NDArray[np.float32], pages: list[bytes]
) -> None:
    for number, size in enumerate((1, 7, 64), start=1):
        table = range(5 * number, 5 * number + 5)
        assert np.array_equal(attention.run_in_chunks(Part(tokens, 0, table), size), wanted), size
        assert attention.pages(table) == pages, size
    # Rows of the same sequence at four depths, and a part of it, in one step.
    starts = (289, 30, 255, 256)
    company = [Part(tokens[at : at + 1], at, range(5)) for at in starts] + [Part(tokens[128:170], 128, range(5, 10))]
    together = attention.run(company)
    assert np.array_equal(together, np.concatenate([wanted[list(starts)], wanted[128:170]]))


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("features", [{}, {"window": 1000, "softcap": 20.0, "sinks": True}], ids=["full", "all"])
def test_long_contexts_keep_their_bits_over_many_splits(kv_type: str, features: dict[str, float]):
    shape = Shape(6, 2, 64, kv_type=kv_type, **features)  # type: ignore[arg-type]
    tokens, pages = tokens_of(4096), range(64)
    wanted: NDArray[np.float32] | None = None
    for num_threads in (1, 4):
        pool = native.ThreadPool(num_threads)
        attention = OneAttention(pool, shape, native.usable_variants()[0], num_pages=64)
        whole = attention.run_in_chunks(Part(tokens, 0, pages), 512)
        wanted = whole if wanted is None else wanted
        assert np.array_equal(whole, wanted)
        depths = [*range(255, 4096, 256), *range(4090, 4096)]
        alone = [attention.run([Part(tokens[at : at + 1], at, pages)])[0] for at in depths]
        assert np.array_equal(np.stack(alone), wanted[depths])
        assert np.array_equal(attention.run([Part(tokens[at : at + 1], at, pages) for at in depths]), wanted[depths])
        attention.plan.close()
        pool.close()
    assert wanted is not None
    error = np.abs(wanted[::51] - attention.exact(tokens, every=51)).max()
    assert error < 2e-5


def test_a_sink_takes_weight_and_gives_no_value(pool: native.ThreadPool):
    """The first token sees itself alone: its output is v / (1 + exp(sink - score))."""
    shape = Shape(2, 2, 64, sinks=True)
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    got = attention.run([Part(tokens_of(1), 0, [0])])
    token = int(tokens_of(1)[0])
    q, k, v = (table[token].astype(np.float64).reshape(2, 64) for table in attention.tables)
    assert attention.sinks is not None
    scores = (q * k.astype(np.float16)).sum(-1) / 8
    wanted = v.astype(np.float16) / (1 + np.exp(attention.sinks - scores))[:, None]
    np.testing.assert_allclose(got[0], wanted.reshape(-1)[attention.elements], rtol=1e-5, atol=1e-6)
    with pytest.raises(native.NativeError, match="2 heads need as many sinks"):
        attention.plan.attention(0, out=0, layer=0, num_heads=2, scale=1.0, sinks=np.zeros(3, np.float32))
    attention.plan.close()


def test_a_page_of_int8_is_little_more_than_half_of_float16(pool: native.ThreadPool):
    sizes = []
    for kv_type in KV_TYPES:
        attention = OneAttention(pool, Shape(4, 2, 80, kv_type=kv_type), native.usable_variants()[0], num_pages=1)
        sizes.append(len(attention.plan.page(0)))
        attention.plan.close()
    assert sizes == [64 * 2 * 2 * 160, 64 * 2 * 2 * (80 + 3 * 2)]


def test_extreme_keys_and_values_stay_finite_as_int8(pool: native.ThreadPool):
    shape = Shape(2, 2, 64, kv_type="q8_0")
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    for table in attention.tables[1:]:
        table[:32] *= 1e-30  # below every float16: zero
        table[32:64] *= 1e4
        table[64:] = 0
    got = attention.run([Part(tokens_of(200), 0, range(4))])
    assert np.isfinite(got).all()
    attention.plan.close()


@pytest.mark.parametrize("layer", [(1, 24, 16), (1, 16, 24), (1, 528, 16), (1, 16, 0)])
def test_a_head_that_fills_no_vector_and_an_unknown_type_are_refused(
    pool: native.ThreadPool, layer: tuple[int, int, int]
):
    plan = native.Plan(pool, variant=native.usable_variants()[0], max_rows=1)
    with pytest.raises(native.NativeError, match="multiples of 16"):
        plan.cache(num_pages=1, layers=[native.CacheLayer(*layer)])
    with pytest.raises(native.NativeError, match="f16 or q8_0, not as q4_0"):
        plan.cache(num_pages=1, layers=[native.CacheLayer(1, 16, 16)], kv_type="q4_0")
    plan.close()
