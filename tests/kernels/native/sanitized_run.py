"""Prompts and single tokens of small models on four threads, with the library given; run by test_sanitizers.py.

One model has attention over quantised matrices, the other recurrent layers and experts.

Arguments: path of the library, variant, number of decoding steps.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from memra_kernels import build_native

build_native.LIBRARY = Path(sys.argv[1])  # before the binding is imported, whose default it becomes

from memra.engine.cpu_executor import CpuExecutor  # noqa: E402 - see above
from tests.engine.recurrent_model import VOCAB_SIZE, make_recurrent_model  # noqa: E402 - see above
from tests.engine.reference_driver import Run, run_rows  # noqa: E402 - see above
from tests.kernels.native.quantised_model import make_program, make_tensors, rows_of  # noqa: E402 - see above


def main() -> None:
    variant, num_steps = sys.argv[2], int(sys.argv[3])
    for run in (run_decoder, run_recurrent):
        if run(variant, num_steps, num_threads=4) != run(variant, num_steps, num_threads=1):
            sys.exit(f"{run.__name__}: four threads and one disagree")
    sys.stdout.write("sound\n")


def run_decoder(variant: str, num_steps: int, *, num_threads: int) -> bytes:
    tensors = make_tensors()
    program = make_program(tensors)
    prompt = np.random.default_rng(1).integers(0, 100, 300).tolist()
    executor = CpuExecutor(program, tensors, num_threads=num_threads, num_pages=12, variant=variant)
    executor.run(rows_of(prompt[:290], list(range(6))))
    executor.run(rows_of(prompt[290:], list(range(6)), 290))
    steps = [executor.run(rows_of([step % 100], list(range(6)), 300 + step)).copy() for step in range(num_steps)]
    seen = np.concatenate(steps).tobytes() + executor.export_pages([0, 5])
    executor.close()
    return seen


def run_recurrent(variant: str, num_steps: int, *, num_threads: int) -> bytes:
    """Two sequences side by side: two prompts in two parts, then tokens; states are read and written in turns."""
    program, tensors = make_recurrent_model()
    executor = CpuExecutor(program, tensors, num_threads=num_threads, num_pages=6, num_states=4, variant=variant)
    tokens = np.random.default_rng(2).integers(0, VOCAB_SIZE, 90 + num_steps).tolist()
    cuts = [0, 45, *range(90, 90 + num_steps)]
    seen = []
    for step, (start, end) in enumerate(pairwise(cuts)):
        before, after = [(step + 1) % 2, 2 + (step + 1) % 2], [step % 2, 2 + step % 2]
        runs = [
            Run(part, pages, start, -1 if step == 0 else before[row], after[row])
            for row, (part, pages) in enumerate(((tokens[start:end], [0, 1, 2]), (tokens[::-1][start:end], [3, 4, 5])))
        ]
        seen += [logits.tobytes() for logits in run_rows(executor, runs)]
    seen += [executor.export_state(state) for state in range(4)]
    executor.close()
    return b"".join(seen)


if __name__ == "__main__":
    main()
