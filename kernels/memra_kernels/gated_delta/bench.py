"""Times the gated delta rule alone and prints a table: `python -m memra_kernels.gated_delta.bench`.

Microseconds a step whose rows are one sequence; the call from Python and five embedding lookups, which stand in for
what the operator reads, are included.
"""

from functools import partial

import numpy as np

from memra_kernels.native import DeltaOp, Plan, ThreadPool
from memra_kernels.step_timer import BATCHES, lookup, print_table, recurrent_step_us

HEAD_DIM = 128
HEADS = {"8 of 4": (4, 8), "32 of 16": (16, 32)}
"""Value heads of key heads; the larger is that of Qwen3-Next 80B."""


def add_delta(plan: Plan, *, heads: tuple[int, int]) -> int:
    """Add one delta rule over lookups; returns the values of its state."""
    num_key_heads, num_value_heads = heads
    keys, values = num_key_heads * HEAD_DIM, num_value_heads * HEAD_DIM
    widths = {"q": keys, "k": keys, "v": values, "a": num_value_heads, "b": num_value_heads}
    operation = DeltaOp(
        **{name: lookup(plan, width) for name, width in widths.items()},
        out=plan.buffer(values),
        a_log=np.full(num_value_heads, -1, np.float32),
        dt_bias=np.zeros(num_value_heads, np.float32),
        offset=0,
        num_key_heads=num_key_heads,
        num_value_heads=num_value_heads,
        key_dim=HEAD_DIM,
        value_dim=HEAD_DIM,
        scale=HEAD_DIM**-1.5,  # queries and keys of length 1 as in a model: those of the lookups have sqrt(HEAD_DIM)
        tiled=False,
    )
    plan.delta(operation)
    return values * HEAD_DIM


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (name, [recurrent_step_us(pool, num, add=partial(add_delta, heads=heads)) for num in BATCHES])
        for name, heads in HEADS.items()
    )
    print_table(f"delta rule of heads of {HEAD_DIM}", BATCHES, rows, head="heads")
    pool.close()


if __name__ == "__main__":
    main()
