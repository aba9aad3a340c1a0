"""Times one matrix of every stored type alone and prints a table: `python -m memra_kernels.linear.bench`.

Microseconds a step on one thread; the call from Python, an embedding lookup and the quantising of activations are
included. The fastest of many calls, so that other processes count little.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import gguf
import numpy as np

from memra_kernels.native import FLOAT_TYPES, GGML_TYPES, CacheLayer, Plan, RowOp, ThreadPool, usable_variants
from memra_kernels.step_timer import BATCHES, fastest_us, lookup, make_batch, print_table

ROWS, COLUMNS = 4864, 1024
"""About the largest matrices of Qwen 2.5 0.5B, with superblocks of 256 filled."""


def make_plan(pool: ThreadPool, variant: str, quant_type: str) -> Plan:
    """Return a plan whose logits are one matrix times an embedding."""
    plan = Plan(pool, variant=variant, max_rows=max(BATCHES))
    elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    # As a scale of any type this byte makes a normal number: subnormal ones are slow.
    stored = np.full(ROWS * COLUMNS // elements * num_bytes, 0x3C, np.uint8)
    weight = plan.weight(stored, quant_type=quant_type, rows=ROWS, columns=COLUMNS)
    plan.cache(num_pages=1, layers=[CacheLayer(1, 16, 16)])
    x = lookup(plan, COLUMNS, quants=True)
    if quant_type not in FLOAT_TYPES:
        plan.row(RowOp(kind="quantise", x=x))
    plan.head(x, weight=weight)
    return plan


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    print_table(f"`[{ROWS}, {COLUMNS}]`", BATCHES, _rows(pool), head="type")
    pool.close()


def _rows(pool: ThreadPool) -> Iterator[tuple[str, Sequence[float]]]:
    batches = [make_batch(num_rows, num_outputs=num_rows) for num_rows in BATCHES]
    for quant_type in GGML_TYPES:
        plan = make_plan(pool, usable_variants()[0], quant_type)
        yield quant_type, [fastest_us(partial(plan.run, batch)) for batch in batches]
        plan.close()


if __name__ == "__main__":
    main()
