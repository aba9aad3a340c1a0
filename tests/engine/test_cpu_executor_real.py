"""The native executor on real models: equality of bits in any cut, company, thread count and instruction set, and the
error of int8 activations against the float32 oracle."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.reference_executor import ReferenceExecutor
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, make_batch, prefill, run_rows

pytestmark = [pytest.mark.models, pytest.mark.slow]

Open = Callable[..., CpuExecutor]
MODELS = ["smollm2_path", "qwen_path", "gemma_path"]


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_model() -> Iterator[Open]:
    with ExitStack() as stack:

        def open_one(path: Path, *, num_pages: int = 40, **settings: object) -> CpuExecutor:
            with open_gguf(path) as checkpoint:
                shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
                program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
                settings = {"num_threads": 2, "num_pages": num_pages} | settings
                executor = CpuExecutor(program, checkpoint.tensors, **settings)  # type: ignore[arg-type]
            stack.callback(executor.close)
            return executor

        yield open_one


def _tokens(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 40000, length).tolist()


@pytest.mark.parametrize("cut", [1, 7, 16, 17, 100, 512])
def test_no_cut_of_a_prompt_changes_a_bit(path: Path, cut: int, open_model: Open):
    executor = open_model(path)
    tokens, pages, other = _tokens(600), list(range(10)), list(range(20, 30))
    last = executor.run(make_batch([Run(tokens, pages)], outputs=[599])).copy()
    for start in range(0, 600, cut):
        part = tokens[start : start + cut]
        logits = executor.run(make_batch([Run(part, other, start)], outputs=[len(part) - 1]))
    np.testing.assert_array_equal(logits, last)
    assert executor.export_pages(other) == executor.export_pages(pages)


def test_no_company_in_a_batch_changes_a_bit(path: Path, open_model: Open):
    executor = open_model(path, num_pages=120)
    runs, alone = [], []
    for index in range(16):
        length = 20 + 19 * index
        pages = list(range(6 * index, 6 * index + 6))
        executor.run(make_batch([Run(_tokens(length, index), pages)], outputs=[]))
        runs.append(Run([7], pages, length))
        alone.append(run_rows(executor, runs[-1:])[0])
    for size in range(2, 17):
        for got, wanted in zip(run_rows(executor, runs[:size]), alone, strict=False):
            np.testing.assert_array_equal(got, wanted)
    prompt = Run(_tokens(40, 99), [100, 101])
    mixed = run_rows(executor, [*runs[:5], prompt, *runs[5:9]])
    np.testing.assert_array_equal(mixed[5], prefill(executor, prompt, 40))
    for got, wanted in zip(mixed[:5] + mixed[6:], alone, strict=False):
        np.testing.assert_array_equal(got, wanted)


def test_no_number_of_threads_and_no_variant_changes_a_bit(path: Path, open_model: Open):
    tokens, pages = _tokens(24), [0]  # more rows than a tile has; the portable variant is slow
    seen: list[tuple[NDArray[np.float32], bytes]] = []
    settings = [(None, threads) for threads in (1, 2, 3, 4)] + [(name, 2) for name in native.usable_variants()]
    for variant, num_threads in settings:
        executor = open_model(path, num_pages=1, variant=variant, num_threads=num_threads)
        logits = executor.run(make_batch([Run(tokens[:-1], pages)], outputs=[22])).copy()
        decoded = executor.run(make_batch([Run(tokens[-1:], pages, 23)])).copy()
        seen.append((np.concatenate([logits, decoded]), executor.export_pages(pages)))
        executor.close()
    for logits, exported in seen[1:]:
        np.testing.assert_array_equal(logits, seen[0][0])
        assert exported == seen[0][1]


def test_long_contexts_keep_their_bits(path: Path, open_model: Open):
    executor = open_model(path, num_pages=140)
    tokens, pages, other = _tokens(4160), list(range(66)), list(range(70, 136))
    executor.run(make_batch([Run(tokens, pages)], outputs=[]))
    for start in range(0, 4096, 333):
        executor.run(make_batch([Run(tokens[start : min(start + 333, 4096)], other, start)], outputs=[]))
    for position in range(4096, 4160):  # decode: splits go to several threads
        decoded = executor.run(make_batch([Run(tokens[position : position + 1], other, position)])).copy()
    assert executor.export_pages(other[:65]) == executor.export_pages(pages[:65])
    again = executor.run(make_batch([Run(tokens[4100:], pages, 4100)], outputs=[59]))
    np.testing.assert_array_equal(again, decoded)


# Root mean square error of the 100 likeliest log probabilities: int8 activations in blocks of 32 give 0.13 to 0.24 on
# SmolLM2, 0.06 to 0.08 on Qwen and 0.18 on Gemma, whose outliers are the larger (llama.cpp's are the same).
BOUNDS = {"smollm2_path": 0.27, "qwen_path": 0.10, "gemma_path": 0.25}


@pytest.mark.parametrize("model", MODELS)
def test_the_error_is_that_of_int8_activations(model: str, request: pytest.FixtureRequest, open_model: Open):
    path: Path = request.getfixturevalue(model)
    text = list(range(1000, 1064))
    run = Run(text, [0])
    with open_gguf(path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        oracle = ReferenceExecutor(program, checkpoint.tensors, device="cpu", dtype="float32", num_pages=1)
    wanted = _log_probabilities(run_rows(oracle, [run])[0])
    oracle.close()
    got = _log_probabilities(run_rows(open_model(path), [run])[0])
    likeliest = np.argsort(-wanted, axis=-1)[:, :100]
    error = np.take_along_axis(got - wanted, likeliest, -1)
    assert np.sqrt(np.mean(error**2)) < BOUNDS[model]


PROMPTS = (list(range(1000, 1064)), _tokens(300, 0), _tokens(300, 1))


# Measured: 0.11, 0.25 and 0.12 on SmolLM2, where float16 keys and values give 0.11, 0.14 and 0.11; on Qwen 0.49 where
# they give 0.05: a few dimensions of its keys are so large that the others of their 32 keep few bits.
@pytest.mark.parametrize(
    ("model", "prompt", "bound"),
    [("smollm2_path", 0, 0.15), ("smollm2_path", 1, 0.30), ("smollm2_path", 2, 0.15), ("qwen_path", 0, 0.60)],
)
def test_the_error_of_int8_keys_and_values_is_bounded(
    model: str, prompt: int, bound: float, request: pytest.FixtureRequest, open_model: Open
):
    path: Path = request.getfixturevalue(model)
    with open_gguf(path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        oracle = ReferenceExecutor(program, checkpoint.tensors, device="cpu", dtype="float32", num_pages=5)
    run = Run(PROMPTS[prompt], range(5))
    wanted = _log_probabilities(run_rows(oracle, [run])[0])
    oracle.close()
    got = _log_probabilities(run_rows(open_model(path, num_pages=5, kv_type="q8_0"), [run])[0])
    likeliest = np.argsort(-wanted, axis=-1)[:, :100]
    error = np.take_along_axis(got - wanted, likeliest, -1)
    assert np.sqrt(np.mean(error**2)) < bound


def _log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
