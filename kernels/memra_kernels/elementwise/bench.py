"""Times what works element by element alone and prints a table: `python -m memra_kernels.elementwise.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from memra_kernels.native import ACTIVATIONS, Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

WIDTH = 1024
"""About that of Qwen 2.5 0.5B."""
FUNCTIONS = tuple(name for name in ACTIVATIONS if name != "swiglu_clamped")
"""Functions of one element: the clamped product needs two."""
_KINDS = ("add", "add_vector", "scale", "scale_rows")


def add_operation(plan: Plan, x: int, *, kind: str, activation: str = "silu") -> Callable[[], None]:
    """Return what adds one operation on `x`, whose second input is `x` where it has one."""
    weight = np.ones(WIDTH, np.float32) if kind == "add_vector" else None
    y = x if kind in ("add", "scale_rows") else -1
    out = plan.buffer(WIDTH)
    return partial(
        plan.row, RowOp(kind=kind, x=x, y=y, out=out, weight=weight, activation=activation, scale=0.5, num_heads=1)
    )


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    operations = {name: partial(add_operation, kind="activate", activation=name) for name in FUNCTIONS}
    operations |= {kind: partial(add_operation, kind=kind) for kind in _KINDS}
    rows = (
        (name, [row_operation_us(pool, WIDTH, num, add=add) for num in BATCHES]) for name, add in operations.items()
    )
    print_table(f"elements of `[{WIDTH}]`", BATCHES, rows, head="operation")
    pool.close()


if __name__ == "__main__":
    main()
