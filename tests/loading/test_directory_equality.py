"""Directories that transformers wrote, against the logits that transformers computes from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memra.engine.executor import RowBatch
from memra.engine.reference_executor import ReferenceExecutor
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.loading.model_directory import TOKENIZER, write_json

NUM_TOKENS, VOCAB = 48, 50
TOLERANCE = 1e-4
"""Float32 sums in another order, over logits of about 5; a wrong convention is off by more than 0.1."""

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "tied llama with wide heads": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True, "head_dim": 32}),
    "llama 3 scaling": ("LlamaConfig", "LlamaForCausalLM", {"rope_parameters": LLAMA_3}),
    "linear scaling": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8, "rope_parameters": GEMMA_ROPE},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_directory_says_what_transformers_says(tmp_path, name):
    token_ids = np.random.default_rng(1).integers(0, VOCAB, NUM_TOKENS).astype(np.int32)
    expected = _transformers_logits(tmp_path, name, token_ids)
    write_json(tmp_path / "tokenizer.json", TOKENIZER)
    found = _memra_logits(tmp_path, token_ids)
    assert np.abs(expected).max() > 1
    assert np.abs(found - expected).max() < TOLERANCE


def _transformers_logits(directory: Path, name: str, token_ids: np.ndarray) -> np.ndarray:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config_class, model_class, changes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**{**SIZES, **changes})).eval()
    stores_offset = model_class.startswith("Gemma")
    _randomise(model, lambda parameter: 0.0 if stores_offset or "norm" not in parameter else 1.0)
    model.save_pretrained(directory)
    with torch.no_grad():
        logits: np.ndarray = model(torch.from_numpy(token_ids[None].astype(np.int64))).logits[0].numpy()
    return logits


def _randomise(model: Any, mean_of: Callable[[str], float]) -> None:
    """Give every weight, norms and biases too, values that a mistake would change."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            values.copy_(torch.randn_like(values) * (0.3 if "norm" in parameter else 0.15) + mean_of(parameter))


def _memra_logits(directory: Path, token_ids: np.ndarray) -> np.ndarray:
    checkpoint = open_directory(directory)
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
    executor = ReferenceExecutor(program, checkpoint.tensors, device="cpu", dtype="float32", num_pages=1)
    rows = np.arange(NUM_TOKENS, dtype=np.int32)
    zeros = np.zeros(NUM_TOKENS, dtype=np.int32)
    logits = executor.run(RowBatch(token_ids, rows, zeros, np.zeros((1, 1), dtype=np.int32), rows)).copy()
    executor.close()
    return logits
