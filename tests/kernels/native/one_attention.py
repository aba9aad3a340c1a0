"""A plan of one attention layer, and what it must answer in exact arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from memra_kernels import native
from numpy.typing import NDArray

VOCABULARY = 96
"""Tokens, and elements of the output that can be read: the native head has as many rows."""
MAX_ROWS = 600


@dataclass(frozen=True)
class Shape:
    """Heads, their sizes and what their scores go through."""

    heads: int
    kv_heads: int
    dim: int
    window: int = 0
    chunk: int = 0
    causal: bool = True
    softcap: float = 0.0
    sinks: bool = False
    value_dim: int | None = None
    kv_type: str = "f16"

    @property
    def layer(self) -> native.CacheLayer:
        return native.CacheLayer(self.kv_heads, self.dim, self.value_dim or self.dim)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of q, k and v."""
        return self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.layer.value_dim

    def seen(self, queries: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
        """Which of `count` keys the queries at these positions see, `[queries, count]`."""
        position, key = queries[:, None], np.arange(count)[None]
        seen = key <= position if self.causal else np.ones((len(queries), count), np.bool_)
        if self.chunk:
            seen = seen & (key // self.chunk == position // self.chunk)
        if self.window and self.causal:
            seen = seen & (position - key < self.window)
        elif self.window:
            seen = seen & (np.abs(position - key) <= self.window // 2)
        return seen


@dataclass(frozen=True)
class Part:
    """Tokens of one sequence from position `start` on, and the sequence's pages."""

    tokens: NDArray[np.int32]
    start: int
    pages: Sequence[int]


def tokens_of(count: int, seed: int = 11) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count, dtype=np.int32)


class OneAttention:
    """A plan of one attention layer whose q, k and v are rows of tables; its head picks elements of the output."""

    def __init__(self, pool: native.ThreadPool, shape: Shape, variant: str, num_pages: int = 40) -> None:
        rng = np.random.default_rng(7)
        self.shape = shape
        self.tables = [rng.standard_normal((VOCABULARY, width)).astype(np.float32) for width in shape.widths]
        self.sinks = rng.standard_normal(shape.heads).astype(np.float32) * 2 if shape.sinks else None
        self.plan = plan = native.Plan(pool, variant=variant, max_rows=MAX_ROWS)
        plan.cache(num_pages=num_pages, layers=[shape.layer], kv_type=shape.kv_type)
        q, k, v = (plan.buffer(width) for width in shape.widths)
        for buffer, table in zip((q, k, v), self.tables, strict=True):
            raw = table.reshape(-1).view(np.uint8)
            plan.row(native.RowOp(kind="embed", out=buffer, stored=raw, stored_row_bytes=4 * table.shape[1]))
        plan.row(native.RowOp(kind="store", x=k, y=v, layer=0))
        width = shape.heads * shape.layer.value_dim
        out = plan.buffer(width)
        plan.attention(
            q,
            out=out,
            layer=0,
            num_heads=shape.heads,
            scale=1 / math.sqrt(shape.dim),
            window=shape.window,
            chunk=shape.chunk,
            causal=shape.causal,
            softcap=shape.softcap,
            sinks=self.sinks,
        )
        # Elements spread evenly over all heads: an odd number apart, so that every lane and vector has its turn.
        self.elements = np.arange(VOCABULARY) * (width // VOCABULARY | 1) % width
        picks = np.zeros((VOCABULARY, width), np.float32)
        picks[np.arange(VOCABULARY), self.elements] = 1
        weight = plan.weight(picks.reshape(-1).view(np.uint8), quant_type="F32", rows=VOCABULARY, columns=width)
        plan.head(out, weight=weight)

    def run(self, parts: Sequence[Part]) -> NDArray[np.float32]:
        """One step; the picked elements of every row, `[rows, VOCABULARY]`."""
        lengths = [len(part.tokens) for part in parts]
        positions = [np.arange(part.start, part.start + len(part.tokens), dtype=np.int32) for part in parts]
        table = np.zeros((len(parts), max(len(part.pages) for part in parts)), np.int32)
        for index, part in enumerate(parts):
            table[index, : len(part.pages)] = part.pages
        batch = native.Batch(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate(positions),
            np.repeat(np.arange(len(parts), dtype=np.int32), lengths),
            table,
            np.arange(sum(lengths), dtype=np.int32),
        )
        return self.plan.run(batch).copy()

    def run_in_chunks(self, part: Part, size: int) -> NDArray[np.float32]:
        """As `run` of a whole part, `size` rows a step."""
        cuts = range(0, len(part.tokens), size)
        return np.concatenate(
            [self.run([Part(part.tokens[cut : cut + size], part.start + cut, part.pages)]) for cut in cuts]
        )

    def pages(self, ids: Sequence[int]) -> list[bytes]:
        return [self.plan.page(page) for page in ids]

    def exact(self, tokens: NDArray[np.int32], *, stored: bool = True, every: int = 1) -> NDArray[np.float64]:
        """The answer of every so manieth row in float64, over keys and values as they are stored or as they came."""
        shape, count = self.shape, len(tokens)
        q, k, v = (table[tokens].astype(np.float64) for table in self.tables)
        k, v = k.reshape(count, shape.kv_heads, shape.dim), v.reshape(count, shape.kv_heads, -1)
        if stored:
            k, v = (_as_stored(x, shape.kv_type) for x in (k, v))
        queries = np.arange(0, count, every)
        q = q[queries].reshape(len(queries), shape.heads, shape.dim)
        seen = shape.seen(queries, count)
        out = np.empty((len(queries), shape.heads, shape.layer.value_dim))
        for head in range(shape.heads):
            kv = head * shape.kv_heads // shape.heads
            scores = q[:, head] @ k[:, kv].T / math.sqrt(shape.dim)
            if shape.softcap:
                scores = shape.softcap * np.tanh(scores / shape.softcap)
            weights = np.where(seen, np.exp(scores), 0)
            total = weights.sum(-1, keepdims=True)
            if self.sinks is not None:
                total += np.exp(float(self.sinks[head]))
            out[:, head] = weights @ v[:, kv] / total
        return out.reshape(len(queries), -1)[:, self.elements]


def _as_stored(x: NDArray[np.float64], kv_type: str) -> NDArray[np.float64]:
    """Keys or values `[..., dim]` rounded as the pages keep them."""
    if kv_type == "f16":
        return x.astype(np.float16).astype(np.float64)
    out = np.empty_like(x)
    for start in range(0, x.shape[-1], 32):
        group = x[..., start : start + 32].astype(np.float32)
        largest = np.abs(group).max(-1, keepdims=True)
        scale = (largest / np.float32(127)).astype(np.float16).astype(np.float64)
        out[..., start : start + 32] = np.rint(group * (np.float32(127) / largest)).astype(np.float64) * scale
    return out
