"""Times the embedding lookup alone and prints a table: `python -m memra_kernels.embed.bench`.

Microseconds of one lookup for all rows of a step, without the call. Every row looks up the same token, which therefore
lies in the cache: the figure is that of dequantising, to which a model's first touch of a row adds a wait for memory.
"""

from collections.abc import Callable
from functools import partial

import gguf
import numpy as np

from memra_kernels.native import GGML_TYPES, Plan, RowOp, ThreadPool
from memra_kernels.step_timer import BATCHES, print_table, row_operation_us

WIDTH = 1024
"""About that of Qwen 2.5 0.5B, with superblocks of 256 filled."""


def add_lookup(plan: Plan, _: int, *, quant_type: str) -> Callable[[], None]:
    """Return what looks a row of this type up once."""
    elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    # As a scale of any type this byte makes a normal number: subnormal ones are slow.
    stored = np.full(WIDTH // elements * num_bytes, 0x3C, np.uint8)
    operation = RowOp(
        kind="embed",
        out=plan.buffer(WIDTH),
        stored_type=quant_type,
        stored=stored,
        stored_row_bytes=stored.nbytes,
        scale=2.0,
    )
    return partial(plan.row, operation)


def main() -> None:
    """Print the table."""
    pool = ThreadPool(1)
    rows = (
        (name, [row_operation_us(pool, WIDTH, num, add=partial(add_lookup, quant_type=name)) for num in BATCHES])
        for name in GGML_TYPES
    )
    print_table(f"lookup of `[{WIDTH}]`", BATCHES, rows, head="type")
    pool.close()


if __name__ == "__main__":
    main()
