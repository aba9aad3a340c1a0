"""Its compiler, then digests of what a library computes, one line a case.

Argument: path of the library. Run by test_zig_library.py. Every layout, few rows and many, on every variant; logits and
cache pages of a small model; tokens and log probabilities of the sampler.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from memra_kernels import build_native

build_native.LIBRARY = Path(sys.argv[1])  # before the binding is imported, whose default it becomes

from memra_kernels import native  # noqa: E402 - see above
from memra_kernels.native_sampler import NativeSampler  # noqa: E402 - see above
from memra_kernels.native_sampler import usable_variants as sampler_variants  # noqa: E402 - see above

from memra.engine.cpu_executor import CpuExecutor  # noqa: E402 - see above
from tests.kernels.native.quantised_model import make_program, make_tensors, rows_of  # noqa: E402 - see above
from tests.kernels.native.sampler_cases import make_options, make_row  # noqa: E402 - see above
from tests.kernels.native.test_linear_kernels import one_matrix  # noqa: E402 - see above


def matrices(variant: str) -> Iterator[tuple[str, bytes]]:
    pool = native.ThreadPool(2)
    for quant_type in sorted(native.GGML_TYPES):
        matrix = one_matrix(pool, variant, quant_type)
        tokens = [i * 5 % 16 for i in range(33)]
        yield f"{quant_type} few", matrix.outputs(tokens).tobytes()
        yield f"{quant_type} many", matrix.outputs(tokens, many_from=1).tobytes()
        matrix.plan.close()
    pool.close()


def model(variant: str) -> Iterator[tuple[str, bytes]]:
    tensors = make_tensors()
    executor = CpuExecutor(make_program(tensors), tensors, num_threads=2, num_pages=12, variant=variant)
    pages = list(range(6))
    prompt = np.random.default_rng(1).integers(0, 100, 300).tolist()
    yield "prompt", executor.run(rows_of(prompt, pages)).tobytes()
    for step in range(20):
        yield f"token {step}", executor.run(rows_of([step], pages, 300 + step)).tobytes()
    yield "pages", executor.export_pages(pages[:5])
    executor.close()


def sampled(variant: str) -> Iterator[tuple[str, bytes]]:
    generator = np.random.default_rng(2)
    for place in range(100):
        row, options = make_row(generator), replace(make_options(generator), num_top_logprobs=5)
        choice = NativeSampler(row.size, variant=variant).choose(row, options, seed=7, position=place)
        numbers = [choice.token_id, choice.logprob or 0.0, *(number for pair in choice.top for number in pair)]
        yield f"choice {place}", np.array(numbers).tobytes()


def main() -> None:
    sys.stdout.write(f"{native.compiler_version()}\n")
    for variant in native.usable_variants():
        for name, data in (*matrices(variant), *model(variant)):
            _say(variant, name, data)
    for variant in sampler_variants():
        for name, data in sampled(variant):
            _say(variant, name, data)


def _say(variant: str, name: str, data: bytes) -> None:
    sys.stdout.write(f"{variant} {name}: {hashlib.sha256(data).hexdigest()[:16]}\n")


if __name__ == "__main__":
    main()
