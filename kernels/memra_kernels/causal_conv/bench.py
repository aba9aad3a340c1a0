"""Times the convolution alone and prints a table: `python -m memra_kernels.causal_conv.bench`.

Microseconds a step whose rows are one sequence; the call from Python and an embedding lookup are included.
"""

from functools import partial

import numpy as np

from memra_kernels.native import Plan, ThreadPool
from memra_kernels.step_timer import BATCHES, lookup, print_table, recurrent_step_us

TAPS = 4
CHANNELS = (2048, 8192)
"""The larger is that of Qwen3-Next 80B: 16 heads of queries and of keys, 32 of values, of 128 each."""


def add_conv(plan: Plan, *, num_channels: int) -> int:
    """Add one convolution of a lookup; returns the values of its state."""
    weight = np.full((num_channels, TAPS), 1 / TAPS, np.float32)
    x = lookup(plan, num_channels)
    plan.conv(x, out=plan.buffer(num_channels), weight=weight, offset=0, activation="silu")
    return (TAPS - 1) * num_channels


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (
            str(channels),
            [recurrent_step_us(pool, num, add=partial(add_conv, num_channels=channels)) for num in BATCHES],
        )
        for channels in CHANNELS
    )
    print_table(f"convolution of {TAPS} tokens", BATCHES, rows, head="channels")
    pool.close()


if __name__ == "__main__":
    main()
