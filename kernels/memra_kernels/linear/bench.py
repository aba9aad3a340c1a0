"""Times one matrix of every stored type alone and prints a table: `python -m memra_kernels.linear.bench`.

Microseconds a step on one thread; the call from Python, an embedding lookup and the quantising of activations are
included. The fastest of many calls, so that other processes count little.
"""

import sys
import time

import numpy as np

from memra_kernels.native import FLOAT_TYPES, GGML_TYPES, Batch, Plan, RowOp, ThreadPool, usable_variants

ROWS, COLUMNS = 4864, 1024
"""About the largest matrices of Qwen 2.5 0.5B, with superblocks of 256 filled."""
BATCHES = (1, 8, 64)
"""Rows of a step: decoding, a few sequences at once, a part of a prompt."""
NUM_CALLS = 30
BLOCK_BYTES = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "MXFP4": (32, 17), "Q4_0": (32, 18), "Q4_1": (32, 20)}
BLOCK_BYTES |= {"Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "IQ4_NL": (32, 18), "Q2_K": (256, 84)}
BLOCK_BYTES |= {"Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "IQ4_XS": (256, 136)}
"""Elements and bytes of a stored block (ggml-common.h)."""


def make_plan(pool: ThreadPool, variant: str, quant_type: str) -> Plan:
    """Return a plan whose logits are one matrix times an embedding."""
    plan = Plan(pool, variant=variant, max_rows=max(BATCHES))
    elements, num_bytes = BLOCK_BYTES[quant_type]
    # As a scale of any type this byte makes a normal number: subnormal ones are slow, as zeros are in MXFP4.
    stored = np.full(ROWS * COLUMNS // elements * num_bytes, 0x3C, np.uint8)
    weight = plan.weight(stored, quant_type=quant_type, rows=ROWS, columns=COLUMNS)
    x = plan.buffer(COLUMNS, quants=True)
    plan.cache(num_pages=1, layers=[(1, 16)])
    table = np.random.default_rng(7).standard_normal((1, COLUMNS)).astype(np.float32).view(np.uint8).reshape(-1)
    plan.row(RowOp(kind="embed", out=x, stored=table, stored_row_bytes=table.nbytes))
    if quant_type not in FLOAT_TYPES:
        plan.row(RowOp(kind="quantise", x=x))
    plan.head(x, weight=weight)
    return plan


def make_batch(num_rows: int) -> Batch:
    """Return rows of the only token, each with logits."""
    zeros, rows = np.zeros(num_rows, np.int32), np.arange(num_rows, dtype=np.int32)
    return Batch(zeros, rows, zeros, np.zeros((1, 1), np.int32), rows)


def measure_us(plan: Plan, batch: Batch) -> float:
    """Return the microseconds of the fastest step."""
    best = float("inf")
    for _ in range(NUM_CALLS):
        start = time.perf_counter()
        plan.run(batch)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def main() -> None:
    """Print the table."""
    variant = usable_variants()[0]
    sys.stdout.write(f"`[{ROWS}, {COLUMNS}]`, {variant}, one thread, microseconds a step\n\n")
    sys.stdout.write(f"| type | {' | '.join(f'{rows} rows' for rows in BATCHES)} |\n|{'---|' * (len(BATCHES) + 1)}\n")
    pool = ThreadPool(1)
    for quant_type in GGML_TYPES:
        plan = make_plan(pool, variant, quant_type)
        times = [measure_us(plan, make_batch(num_rows)) for num_rows in BATCHES]
        sys.stdout.write(f"| {quant_type} | {' | '.join(f'{value:.0f}' for value in times)} |\n")
        plan.close()
    pool.close()


if __name__ == "__main__":
    main()
