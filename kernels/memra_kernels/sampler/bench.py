"""Times the native sampler beside the numpy reference and prints a table: `python -m memra_kernels.sampler.bench`.

Microseconds a row, the call from Python included; the fastest of many calls, so that other processes count little.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native_sampler import NativeSampler, SamplingOptions, usable_variants
from memra_kernels.sampler import reference
from memra_kernels.step_timer import fastest_us

VOCAB_SIZE = 151_936  # Qwen 2.5
NUM_CALLS = 400

CASES: dict[str, SamplingOptions] = {
    "greedy": SamplingOptions(temperature=0.0),
    "temperature 1": SamplingOptions(),
    "top-k 40, top-p 0.95": SamplingOptions(temperature=0.8, top_k=40, top_p=0.95),
    "top-k 40, top-p 0.95, min-p 0.05": SamplingOptions(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "top-k 5000": SamplingOptions(top_k=5000),
    "top-p 0.9": SamplingOptions(top_p=0.9),
    "top-p 0.999": SamplingOptions(top_p=0.999),
    "typical-p 0.9": SamplingOptions(typical_p=0.9),
    "greedy, 20 log probabilities": SamplingOptions(temperature=0.0, num_top_logprobs=20),
}
"""What is timed."""


def make_rows() -> dict[str, NDArray[np.float32]]:
    """Rows `[VOCAB_SIZE]` by their shape: a few likely tokens over noise as a model gives them, noise, all equal."""
    generator = np.random.default_rng(7)
    noise = generator.standard_normal(VOCAB_SIZE).astype(np.float32)
    peaked = noise * np.float32(2)
    peaked[generator.integers(0, VOCAB_SIZE, 30)] += np.linspace(8, 16, 30, dtype=np.float32)
    return {"peaked": peaked, "flat": noise * np.float32(0.5), "equal": np.zeros(VOCAB_SIZE, np.float32)}


def measure_us(call: Callable[[int], object], num_calls: int) -> float:
    """Return the microseconds that the fastest of some calls takes, each with a position of its own."""
    positions = count()
    return fastest_us(lambda: call(next(positions)), num_calls=num_calls)


def main() -> None:
    """Print the table."""
    samplers = [NativeSampler(VOCAB_SIZE, variant=variant) for variant in usable_variants()]
    columns = ["row", "options", *usable_variants(), "numpy reference"]
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for row_name, row in make_rows().items():
        for name, options in CASES.items():
            times = [_measure_native(sampler, row, options) for sampler in samplers]
            times.append(measure_us(partial(_choose_by_reference, row, options), 5))
            sys.stdout.write(f"| {row_name} | {name} | {' | '.join(f'{value:.0f}' for value in times)} |\n")


def _measure_native(sampler: NativeSampler, row: NDArray[np.float32], options: SamplingOptions) -> float:
    return measure_us(lambda position: sampler.choose(row, options, seed=1, position=position), NUM_CALLS)


def _choose_by_reference(row: NDArray[np.float32], options: SamplingOptions, position: int) -> int:
    return reference.choose(row, options, (position + 0.5) / 5)


if __name__ == "__main__":
    main()
