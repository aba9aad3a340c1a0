"""Times the norm alone and prints a table: `python -m memra_kernels.rmsnorm.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from memra_kernels.native import Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

SHAPES = {"576": (576, 576), "896": (896, 896), "640": (640, 640), "4 groups of 256": (1024, 256)}
"""Widths of a row and of its groups: SmolLM2 135M, Qwen 2.5 0.5B, Gemma 3 270M, and the latter's norm of queries."""


def add_norm(plan: Plan, x: int, *, width: int, group_width: int) -> Callable[[], None]:
    """Return what adds one norm of `x`."""
    out, weight = plan.buffer(width), np.ones(group_width, np.float32)
    return partial(plan.row, RowOp(kind="norm", x=x, out=out, weight=weight, group_width=group_width, eps=1e-6))


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (
            name,
            [
                row_operation_us(pool, width, num, add=partial(add_norm, width=width, group_width=group_width))
                for num in BATCHES
            ],
        )
        for name, (width, group_width) in SHAPES.items()
    )
    print_table("norm", BATCHES, rows, head="width")
    pool.close()


if __name__ == "__main__":
    main()
