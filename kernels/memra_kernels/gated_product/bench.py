"""Times the gated product alone and prints a table: `python -m memra_kernels.gated_product.bench`.

Microseconds of one operation on all rows of a step, without the call: the rows lie in the cache. Where gate and up are
matrices of a quantised type the product is made inside `linear`, and costs what `memra_kernels.linear.bench` shows.
"""

from collections.abc import Callable
from functools import partial

from memra_kernels.native import ACTIVATIONS, Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

WIDTHS = (1536, 4864, 2048)
"""Of a feed-forward block: SmolLM2 135M, Qwen 2.5 0.5B, Gemma 3 270M."""


def add_product(plan: Plan, x: int, *, width: int, activation: str) -> Callable[[], None]:
    """Return what adds one product of `x` with its own activation."""
    return partial(plan.row, RowOp(kind="gate", x=x, y=x, out=plan.buffer(width), activation=activation))


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (
            f"{activation}, {width}",
            [
                row_operation_us(pool, width, num, add=partial(add_product, width=width, activation=activation))
                for num in BATCHES
            ],
        )
        for activation in ACTIVATIONS
        for width in WIDTHS
    )
    print_table("gated product", BATCHES, rows, head="activation, width")
    pool.close()


if __name__ == "__main__":
    main()
