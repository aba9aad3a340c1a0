"""Times a mixture of experts alone and prints a table: `python -m memra_kernels.experts.bench`.

Microseconds a step; the call from Python, two lookups and the quantising of activations are included. Rows choose at
random, so that many rows read more of the weights.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import gguf
import numpy as np

from memra_kernels.native import ExpertsOp, Plan, RowOp, ThreadPool, usable_variants
from memra_kernels.step_timer import BATCHES, close, fastest_us, lookup, make_batch, print_table

EXPERTS, USED, WIDTH, COLUMNS = 64, 8, 1024, 2048
"""OLMoE 1B-7B."""
QUANT_TYPES = ("Q4_K", "MXFP4", "Q8_0")
NUM_CALLS = 8
"""A step takes up to a second, so that a few calls do."""


def make_plan(pool: ThreadPool, quant_type: str) -> Plan:
    """Return a plan of one mixture; the logits of a row are those of its position."""
    num_rows = max(BATCHES)
    plan = Plan(pool, variant=usable_variants()[0], max_rows=num_rows)
    x, logits = lookup(plan, COLUMNS, quants=True), plan.buffer(EXPERTS)
    plan.row(RowOp(kind="quantise", x=x))
    table = np.random.default_rng(EXPERTS).standard_normal((num_rows, EXPERTS)).astype(np.float32)
    stored = table.reshape(-1).view(np.uint8)
    plan.row(RowOp(kind="position_embed", out=logits, stored=stored, stored_row_bytes=4 * EXPERTS))
    gate, up = (_add_weight(plan, quant_type, WIDTH, COLUMNS) for _ in range(2))
    plan.experts(
        ExpertsOp(
            x=x,
            logits=logits,
            out=plan.buffer(COLUMNS),
            hidden=plan.buffer(WIDTH, values=False, quants=True, copies=USED),
            parts=plan.buffer(COLUMNS, copies=USED),
            gate=gate,
            up=up,
            down=_add_weight(plan, quant_type, COLUMNS, WIDTH),
            num_experts=EXPERTS,
            num_used=USED,
            width=WIDTH,
            router="softmax",
            activation="silu",
        )
    )
    close(plan, COLUMNS)
    return plan


def _add_weight(plan: Plan, quant_type: str, rows: int, columns: int) -> int:
    elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    # As a scale of any type this byte makes a normal number: subnormal ones are slow.
    stored = np.full(EXPERTS * rows * columns // elements * num_bytes, 0x3C, np.uint8)
    return plan.weight(stored, quant_type=quant_type, rows=EXPERTS * rows, columns=columns)


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    title = f"{USED} of {EXPERTS} experts of `[{WIDTH}, {COLUMNS}]`"
    print_table(title, BATCHES, _rows(pool), head="type")
    pool.close()


def _rows(pool: ThreadPool) -> Iterator[tuple[str, Sequence[float]]]:
    for quant_type in QUANT_TYPES:
        plan = make_plan(pool, quant_type)
        yield quant_type, [fastest_us(partial(plan.run, make_batch(num)), num_calls=NUM_CALLS) for num in BATCHES]
        plan.close()


if __name__ == "__main__":
    main()
