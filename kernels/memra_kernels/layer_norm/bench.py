"""Times the layer norm alone and prints a table: `python -m memra_kernels.layer_norm.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from memra_kernels.native import Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

WIDTHS = (384, 768, 2048)
"""Of a row: MiniLM L6, GPT-2 and BERT base, Phi 1."""


def add_norm(plan: Plan, x: int, *, width: int) -> Callable[[], None]:
    """Return what adds one norm of `x`."""
    out, weight, bias = plan.buffer(width), np.ones(width, np.float32), np.zeros(width, np.float32)
    return partial(plan.row, RowOp(kind="layer_norm", x=x, out=out, weight=weight, bias=bias, eps=1e-5))


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (str(width), [row_operation_us(pool, width, num, add=partial(add_norm, width=width)) for num in BATCHES])
        for width in WIDTHS
    )
    print_table("layer norm", BATCHES, rows, head="width")
    pool.close()


if __name__ == "__main__":
    main()
