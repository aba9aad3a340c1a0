"""Times the slice alone and prints a table: `python -m memra_kernels.slice.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache.
"""

from collections.abc import Callable
from functools import partial

from memra_kernels.native import Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

SHAPES = {
    "1 group, 2048 of 3072": (1, 3072, 2048),
    "16 groups, 128 of 256": (16, 256, 128),
    "32 groups, 16 of 64": (32, 64, 16),
}
"""Groups, the columns of one, and how many of them are taken: queries out of a fused matrix, and parts of heads."""


def add_slice(plan: Plan, x: int, *, shape: tuple[int, int, int]) -> Callable[[], None]:
    """Return what takes the last columns of every group of `x` once."""
    num_groups, stride, width = shape
    out = plan.buffer(num_groups * width)
    operation = RowOp(
        kind="slice", x=x, out=out, num_heads=num_groups, stride=stride, offset=stride - width, head_dim=width
    )
    return partial(plan.row, operation)


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (
            name,
            [row_operation_us(pool, shape[0] * shape[1], num, add=partial(add_slice, shape=shape)) for num in BATCHES],
        )
        for name, shape in SHAPES.items()
    )
    print_table("slice", BATCHES, rows, head="shape")
    pool.close()


if __name__ == "__main__":
    main()
