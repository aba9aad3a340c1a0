"""Equality of bits on SmolLM2, where weights are large enough for the matrix library to change its mind."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memra.engine.reference_executor import ReferenceExecutor
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, prefill, run_rows

pytestmark = [pytest.mark.models, pytest.mark.slow]

LENGTH = 320


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def smollm2(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[ReferenceExecutor]:
    with open_gguf(smollm2_path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        executor = ReferenceExecutor(program, checkpoint.tensors, device="cpu", dtype=request.param, num_pages=80)
    yield executor
    executor.close()


def _tokens(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 49152, length).tolist()


@pytest.mark.parametrize("cut", [29, 127])
def test_no_cut_of_a_prompt_changes_a_bit(smollm2: ReferenceExecutor, cut: int):
    tokens, pages, other = _tokens(LENGTH, 0), [0, 1, 2, 3, 4], [9, 7, 5, 8, 6]
    logits = prefill(smollm2, Run(tokens, pages), LENGTH)
    np.testing.assert_array_equal(prefill(smollm2, Run(tokens, other), cut), logits)
    assert smollm2.export_pages(other) == smollm2.export_pages(pages)


@pytest.mark.parametrize("cut", [1, 7])
def test_no_small_cut_changes_a_bit_across_a_block_of_keys(smollm2: ReferenceExecutor, cut: int):
    tokens, pages = _tokens(LENGTH, 0), [0, 1, 2, 3, 4]
    logits = prefill(smollm2, Run(tokens, pages), LENGTH)[250:264]
    np.testing.assert_array_equal(prefill(smollm2, Run(tokens[250:264], pages, 250), cut), logits)


def test_no_company_in_a_batch_changes_a_bit(smollm2: ReferenceExecutor):
    runs, alone = [], []
    for index, length in enumerate([1, 30, 64, 100, 200, 255, 256, 300]):
        pages = list(range(5 * index + 40, 5 * index + 45))
        prefill(smollm2, Run(_tokens(length, index), pages), length)
        runs.append(Run([7], pages, length))
        alone.append(run_rows(smollm2, runs[-1:])[0])
    rng = np.random.default_rng(1)
    for size in (2, 5, 8):
        members = rng.permutation(8)[:size].tolist()
        prompt = Run(_tokens(size * 11, size), [0, 1])
        results = run_rows(smollm2, [runs[index] for index in members[:1]] + [prompt] + [runs[i] for i in members[1:]])
        np.testing.assert_array_equal(results.pop(1), prefill(smollm2, prompt, 5 * size))
        for index, logits in zip(members, results, strict=True):
            np.testing.assert_array_equal(logits, alone[index])
