"""Attention over pages: near the exact answer, and the same bits however its rows were cut and its threads divided."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

_VOCABULARY = 64


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    dim: int
    window: int = 0
    softcap: float = 0.0

    @property
    def widths(self) -> tuple[int, int, int]:
        return self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim


SHAPES = [
    Shape(3, 1, 64),
    Shape(9, 3, 64),
    Shape(7, 1, 64, window=100),
    Shape(4, 2, 80),
    Shape(4, 4, 96),
    Shape(8, 2, 128, softcap=5.0),
    Shape(4, 1, 256, window=300),
]


class OneAttention:
    """A plan of one attention layer whose q, k and v are rows of tables; its head is the identity."""

    def __init__(self, pool: native.ThreadPool, shape: Shape, variant: str, num_pages: int = 40) -> None:
        rng = np.random.default_rng(7)
        self.shape = shape
        self.tables = [rng.standard_normal((_VOCABULARY, width)).astype(np.float32) for width in shape.widths]
        self.plan = plan = native.Plan(pool, variant=variant, max_rows=600)
        plan.cache(num_pages=num_pages, layers=[(shape.kv_heads, shape.dim)])
        q, k, v = (plan.buffer(width) for width in shape.widths)
        for buffer, table in zip((q, k, v), self.tables, strict=True):
            raw = table.reshape(-1).view(np.uint8)
            op = native.RowOp(kind="embed", out=buffer, stored=raw, stored_row_bytes=4 * table.shape[1])
            plan.row(op)
        plan.row(native.RowOp(kind="store", x=k, y=v, layer=0))
        out = plan.buffer(shape.widths[0])
        scale = 1 / math.sqrt(shape.dim)
        plan.attention(
            q, out=out, layer=0, num_heads=shape.heads, scale=scale, window=shape.window, softcap=shape.softcap
        )
        identity = np.eye(shape.widths[0], dtype=np.float32).reshape(-1).view(np.uint8)
        width = shape.widths[0]
        plan.head(out, weight=plan.weight(identity, quant_type="F32", rows=width, columns=width))
        plan._vocabulary = width
        plan._lib.memra_plan_vocabulary(plan._plan, _VOCABULARY)

    def run(self, tokens: NDArray[np.int32], start: int, table: list[int]) -> NDArray[np.float32]:
        positions = np.arange(start, start + len(tokens), dtype=np.int32)
        rows = np.arange(len(tokens), dtype=np.int32)
        batch = native.Batch(tokens, positions, np.zeros_like(rows), np.array([table], np.int32), rows)
        return self.plan.run(batch).copy()

    def exact(self, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
        shape, count = self.shape, len(tokens)
        q, k, v = (table[tokens].astype(np.float64) for table in self.tables)
        k, v = (x.astype(np.float16).astype(np.float64).reshape(count, shape.kv_heads, shape.dim) for x in (k, v))
        q = q.reshape(count, shape.heads, shape.dim)
        age = np.arange(count)[:, None] - np.arange(count)[None]
        seen = (age >= 0) & (age < (shape.window or count))
        out = np.empty_like(q)
        for head in range(shape.heads):
            kv = head * shape.kv_heads // shape.heads
            scores = q[:, head] @ k[:, kv].T / math.sqrt(shape.dim)
            if shape.softcap:
                scores = shape.softcap * np.tanh(scores / shape.softcap)
            weights = np.where(seen, np.exp(scores - np.where(seen, scores, -np.inf).max(-1, keepdims=True)), 0)
            out[:, head] = weights @ v[:, kv] / weights.sum(-1, keepdims=True)
        return out.reshape(count, -1)


def tokens_of(count: int) -> NDArray[np.int32]:
    return np.random.default_rng(11).integers(0, _VOCABULARY, count, dtype=np.int32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_answer_is_near_the_exact_one(pool: native.ThreadPool, shape: Shape):
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    tokens = tokens_of(560)
    got = attention.run(tokens, 0, list(range(9)))
    assert np.abs(got - attention.exact(tokens)).max() < 2e-5  # values are of order 1
    attention.plan.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_cut_gives_the_same_bits_and_pages(pool: native.ThreadPool, shape: Shape):
    attention = OneAttention(pool, shape, native.usable_variants()[0])
    tokens = tokens_of(560)
    wanted = attention.run(tokens, 0, list(range(9)))
    pages = [attention.plan.page(page) for page in range(9)]
    for number, cuts in enumerate(([0, 1, 64, 100, 333, 560], [0, 255, 256, 257, 300, 559, 560])):
        table = list(range(9 + 9 * number, 18 + 9 * number))
        parts = [attention.run(tokens[a:b], a, table) for a, b in pairwise(cuts)]
        assert np.array_equal(np.concatenate(parts), wanted)
        assert [attention.plan.page(page) for page in table] == pages
    attention.plan.close()


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2], SHAPES[5]], ids=str)
def test_threads_and_variants_give_the_same_bits(shape: Shape):
    tokens = tokens_of(300)
    wanted: NDArray[np.float32] | None = None
    for variant in native.usable_variants():
        for num_threads in (1, 2, 4):
            pool = native.ThreadPool(num_threads)
            attention = OneAttention(pool, shape, variant, num_pages=5)
            got = np.concatenate(
                [attention.run(tokens[:290], 0, list(range(5)))]
                + [attention.run(tokens[i : i + 1], i, list(range(5))) for i in range(290, 300)]
            )
            wanted = got if wanted is None else wanted
            assert np.array_equal(got, wanted), (variant, num_threads)
            attention.plan.close()
            pool.close()
