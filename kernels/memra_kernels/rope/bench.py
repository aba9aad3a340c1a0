"""Times the rotation alone and prints a table: `python -m memra_kernels.rope.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache. `angles` is done once
a step and kind of rotation, `rotate` once a layer for the queries and once for the keys.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from memra_kernels.native import Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

SHAPES = {
    "9 heads of 64, interleaved": (9, 64, True),
    "14 heads of 64, halves": (14, 64, False),
    "4 heads of 256, halves": (4, 256, False),
}
"""Query heads, their size, and which elements are pairs: SmolLM2 135M, Qwen 2.5 0.5B, Gemma 3 270M."""
_BASE = 10_000.0


def angles_operation(plan: Plan, head_dim: int) -> RowOp:
    """Return the operation that computes a head's cosines and sines."""
    frequencies = _BASE ** (-2.0 * np.arange(head_dim // 2, dtype=np.float64) / head_dim)
    return RowOp(kind="angles", out=plan.buffer(head_dim), half_dims=head_dim // 2, frequencies=frequencies)


def add_angles(plan: Plan, _: int, *, head_dim: int) -> Callable[[], None]:
    """Return what computes the angles once."""
    return partial(plan.row, angles_operation(plan, head_dim))


def add_rotation(plan: Plan, x: int, *, shape: tuple[int, int, bool]) -> Callable[[], None]:
    """Return what rotates `x` in place once, by angles that are computed once a step."""
    num_heads, head_dim, interleaved = shape
    angles = angles_operation(plan, head_dim)
    plan.row(angles)
    rotation = RowOp(
        kind="rope",
        x=x,
        y=angles.out,
        num_heads=num_heads,
        head_dim=head_dim,
        half_dims=head_dim // 2,
        interleaved=interleaved,
    )
    return partial(plan.row, rotation)


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    operations = [
        (f"{name}: {operation}", shape[0] * shape[1], add)
        for name, shape in SHAPES.items()
        for operation, add in (
            ("angles", partial(add_angles, head_dim=shape[1])),
            ("rotate", partial(add_rotation, shape=shape)),
        )
    ]
    rows = ((name, [row_operation_us(pool, width, num, add=add) for num in BATCHES]) for name, width, add in operations)
    print_table("rotation", BATCHES, rows, head="shape")
    pool.close()


if __name__ == "__main__":
    main()
