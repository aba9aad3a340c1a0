"""The torch executor against `transformers` in float32, on tiny random models and on real ones."""

import gc
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from transformers.models.gemma3 import modeling_gemma3

from memra.engine.reference_executor import ReferenceExecutor
from memra.layers.operators import Attention
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, prefill
from tests.engine.transformers_models import build_oracle, oracle_logits
from tests.models.tiny_models import VOCAB_SIZE, ArrayTensor, TinyModel, make_gemma3, make_llama, make_qwen2

_LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}


@pytest.mark.parametrize(
    "model",
    [
        make_llama(),
        make_llama(**_LINEAR),
        make_qwen2(),
        make_qwen2(tied=False),
        make_gemma3(),
        make_gemma3(**_LINEAR),
        make_gemma3(final_logit_softcapping=5.0),
    ],
    ids=["llama", "llama-linear", "qwen2", "qwen2-untied", "gemma3", "gemma3-linear", "gemma3-softcap"],
)
def test_a_tiny_model_has_the_logits_of_transformers(model: TinyModel):
    tokens = np.random.default_rng(0).integers(0, VOCAB_SIZE, 290).tolist()
    executor = ReferenceExecutor(model.build_program(), model.tensors, device="cpu", dtype="float32", num_pages=5)
    logits = prefill(executor, Run(tokens, [0, 1, 2, 3, 4]), 100)
    expected = oracle_logits(build_oracle(model.architecture, model.metadata, model.tensors), tokens)
    # Two orders of float32 sums through seven layers; a wrong window, base, norm or cap is off by more than 0.01.
    assert np.abs(logits - expected).max() < 1e-4


def test_capped_scores_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch):
    model = make_gemma3()
    program = model.build_program()
    operators = tuple(replace(op, softcap=1.5) if isinstance(op, Attention) else op for op in program)
    # Its Gemma 3 has the cap of Gemma 2 as an argument that nobody passes.
    capped = partial(modeling_gemma3.eager_attention_forward, softcap=1.5)
    monkeypatch.setattr(modeling_gemma3, "eager_attention_forward", capped)
    settings = {"device": "cpu", "dtype": "float32", "num_pages": 5}
    executor = ReferenceExecutor(replace(program, operators=operators), model.tensors, **settings)
    tokens = np.random.default_rng(0).integers(0, VOCAB_SIZE, 290).tolist()
    logits = prefill(executor, Run(tokens, [0, 1, 2, 3, 4]), 33)
    expected = oracle_logits(build_oracle(model.architecture, model.metadata, model.tensors), tokens)
    assert np.abs(logits - expected).max() < 1e-4


def test_frequency_factors_are_those_of_llama_3():
    """The file's factors for Llama 3.1's settings, against the settings themselves in transformers."""
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    wavelengths = 2 * np.pi * 100000.0 ** (np.arange(4) / 4)
    smooth = np.clip((64 / wavelengths - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    factors = (1.0 / (smooth + (1.0 - smooth) / 8.0)).astype(np.float32)
    model = make_llama()
    tensors = model.tensors | {"rope_freqs.weight": ArrayTensor("rope_freqs.weight", factors)}
    program = TinyModel("llama", model.metadata, tensors).build_program()
    executor = ReferenceExecutor(program, tensors, device="cpu", dtype="float32", num_pages=5)
    tokens = np.random.default_rng(0).integers(0, VOCAB_SIZE, 290).tolist()
    logits = prefill(executor, Run(tokens, [0, 1, 2, 3, 4]), 290)
    oracle = build_oracle(
        "llama", model.metadata, model.tensors, rope={"rope_type": "llama3", "rope_theta": 100000.0} | scaling
    )
    assert np.abs(logits - oracle_logits(oracle, tokens)).max() < 1e-4


def _largest_error(path: Path) -> float:
    with open_gguf(path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        executor = ReferenceExecutor(program, checkpoint.tensors, device="cpu", dtype="float32", num_pages=2)
        run = Run([2, 9707, 1917, 284, 856], [0, 1])
        logits = prefill(executor, run, 5)
        tokens = list(run.tokens)
        while len(tokens) < 64:  # the model's own text, as confident logits are the large ones
            tokens.append(int(logits[-1].argmax()))
            step = prefill(executor, Run(tokens[-1:], run.pages, len(tokens) - 1), 1)
            logits = np.concatenate([logits, step])
        executor.close()
        oracle = build_oracle(checkpoint.architecture, checkpoint.metadata, checkpoint.tensors)
    expected = oracle_logits(oracle, tokens)
    return float(np.abs(logits - expected).max())


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma_path", "qwen_path"])
def test_a_real_model_has_the_logits_of_transformers(fixture: str, request: pytest.FixtureRequest):
    # Logits reach 40, where a float32 has a spacing of 4e-6: 30 layers of rounding stay below 1e-3.
    assert _largest_error(request.getfixturevalue(fixture)) < 1e-3
    gc.collect()
