"""Prompts and single tokens of a small model on four threads, with the library given; run by test_sanitizers.py.

Arguments: path of the library, variant, number of decoding steps.
"""

import sys
from pathlib import Path

import numpy as np
from memra_kernels import build_native

build_native.LIBRARY = Path(sys.argv[1])  # before the binding is imported, whose default it becomes

from memra.engine.cpu_executor import CpuExecutor  # noqa: E402 - see above
from tests.kernels.native.quantised_model import make_program, make_tensors, rows_of  # noqa: E402 - see above


def main() -> None:
    variant, num_steps = sys.argv[2], int(sys.argv[3])
    tensors = make_tensors()
    program = make_program(tensors)
    prompt = np.random.default_rng(1).integers(0, 100, 300).tolist()
    seen = []
    for num_threads in (4, 1):
        executor = CpuExecutor(program, tensors, num_threads=num_threads, num_pages=12, variant=variant)
        executor.run(rows_of(prompt[:290], list(range(6))))
        executor.run(rows_of(prompt[290:], list(range(6)), 290))
        steps = [executor.run(rows_of([step % 100], list(range(6)), 300 + step)).copy() for step in range(num_steps)]
        seen.append(np.concatenate(steps).tobytes() + executor.export_pages([0, 5]))
        executor.close()
    if seen[0] != seen[1]:
        sys.exit("four threads and one disagree")
    sys.stdout.write("sound\n")


if __name__ == "__main__":
    main()
