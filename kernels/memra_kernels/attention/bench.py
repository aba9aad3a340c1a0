"""Times attention alone at growing contexts and prints a table: `python -m memra_kernels.attention.bench`.

Microseconds a step; the call from Python, three lookups that stand in for q, k and v, and storing the keys and values
are included. The fastest of many calls, so that other processes count little.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from memra_kernels.native import KV_TYPES, PAGE_TOKENS, Batch, CacheLayer, Plan, RowOp, ThreadPool, usable_variants
from memra_kernels.step_timer import fastest_us, lookup, print_table

SHAPES = {
    "14 heads of 64 on 2": (14, 2, 64),
    "9 heads of 64 on 3": (9, 3, 64),
    "4 heads of 256 on 1": (4, 1, 256),
    "32 heads of 128 on 8": (32, 8, 128),
}
"""Query heads, key-value heads and their size: Qwen 2.5 0.5B, SmolLM2 135M, Gemma 3 270M, Llama 3 8B."""
CONTEXTS = (512, 2048, 8192)
"""Tokens before the step."""
BATCHES = (1, 64)
"""Rows of a step: decoding, and a part of a prompt."""


def make_plan(pool: ThreadPool, shape: tuple[int, int, int], kv_type: str) -> Plan:
    """Return a plan of one attention layer without logits."""
    num_heads, num_kv_heads, head_dim = shape
    plan = Plan(pool, variant=usable_variants()[0], max_rows=max(BATCHES))
    num_pages = -(-(max(CONTEXTS) + max(BATCHES)) // PAGE_TOKENS)
    plan.cache(num_pages=num_pages, layers=[CacheLayer(num_kv_heads, head_dim, head_dim)], kv_type=kv_type)
    widths = [heads * head_dim for heads in (num_heads, num_kv_heads, num_kv_heads)]
    q, k, v = (lookup(plan, width) for width in widths)
    plan.row(RowOp(kind="store", x=k, y=v, layer=0))
    out = plan.buffer(widths[0])
    plan.attention(q, out=out, layer=0, num_heads=num_heads, scale=1 / math.sqrt(head_dim))
    head = plan.weight(np.zeros(4 * widths[0], np.uint8), quant_type="F32", rows=1, columns=widths[0])
    plan.head(out, weight=head)  # a plan has one; no row asks for its logits
    return plan


def make_batch(context: int, num_rows: int) -> Batch:
    """Return rows of one sequence that follow `context` tokens."""
    zeros, none = np.zeros(num_rows, np.int32), np.empty(0, np.int32)
    positions = np.arange(context, context + num_rows, dtype=np.int32)
    num_pages = -(-(context + num_rows) // PAGE_TOKENS)
    return Batch(zeros, positions, zeros, np.arange(num_pages, dtype=np.int32)[None], none)


def main() -> None:
    """Print the table."""
    columns = [f"{context} before, {rows} rows" for context in CONTEXTS for rows in BATCHES]
    pool = ThreadPool(1)
    print_table("attention", columns, _rows(pool), head="shape")
    pool.close()


def _rows(pool: ThreadPool) -> Iterator[tuple[str, Sequence[float]]]:
    batches = [make_batch(context, num_rows) for context in CONTEXTS for num_rows in BATCHES]
    for (name, shape), kv_type in product(SHAPES.items(), KV_TYPES):
        plan = make_plan(pool, shape, kv_type)
        yield f"{name}, {kv_type}", [fastest_us(partial(plan.run, batch)) for batch in batches]
        plan.close()


if __name__ == "__main__":
    main()
