"""Times the logits of a large vocabulary alone and prints a table: `python -m memra_kernels.head.bench`.

Microseconds a step; the call from Python, an embedding lookup and the quantising of activations are included. Columns
are rows that want logits: with one, the time is that of reading the matrix from memory.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import gguf
import numpy as np

from memra_kernels.native import FLOAT_TYPES, CacheLayer, Plan, RowOp, ThreadPool, usable_variants
from memra_kernels.step_timer import fastest_us, lookup, make_batch, print_table

VOCABULARY, COLUMNS = 151_936, 1024
"""Qwen 2.5 0.5B, with superblocks of 256 filled."""
QUANT_TYPES = ("Q4_0", "Q4_K", "Q5_0", "Q6_K", "Q8_0", "F16")
"""Types in which files keep their heads."""
BATCHES = (1, 4, 16)
"""Rows that want logits: sequences that decode together."""
NUM_CALLS = 8
"""A step takes up to a second, so that a few calls do."""


def make_plan(pool: ThreadPool, quant_type: str) -> Plan:
    """Return a plan whose logits are a soft-capped head of one row."""
    plan = Plan(pool, variant=usable_variants()[0], max_rows=max(BATCHES))
    elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    # As a scale of any type this byte makes a normal number: subnormal ones are slow.
    stored = np.full(VOCABULARY * COLUMNS // elements * num_bytes, 0x3C, np.uint8)
    weight = plan.weight(stored, quant_type=quant_type, rows=VOCABULARY, columns=COLUMNS)
    plan.cache(num_pages=1, layers=[CacheLayer(1, 16, 16)])
    x = lookup(plan, COLUMNS, quants=quant_type not in FLOAT_TYPES)
    if quant_type not in FLOAT_TYPES:
        plan.row(RowOp(kind="quantise", x=x))
    plan.head(x, weight=weight, scale=0.5, softcap=30.0)
    return plan


def measure_us(plan: Plan) -> Sequence[float]:
    """Return the microseconds of the fastest step for every number of rows."""
    batches = [make_batch(num_rows, num_outputs=num_rows) for num_rows in BATCHES]
    return [fastest_us(partial(plan.run, batch), num_calls=NUM_CALLS) for batch in batches]


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    print_table(f"head of `[{VOCABULARY}, {COLUMNS}]`", BATCHES, _rows(pool), head="type")
    pool.close()


def _rows(pool: ThreadPool) -> Iterator[tuple[str, Sequence[float]]]:
    for quant_type in QUANT_TYPES:
        plan = make_plan(pool, quant_type)
        yield quant_type, measure_us(plan)
        plan.close()


if __name__ == "__main__":
    main()
