"""Families of plain decoders, against transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.models.family_harness import check_family, perturb

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
}


def _llama(**changes: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | changes))


def _qwen2(**changes: Any) -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES | changes))


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "llama, tied": lambda: _llama(tie_word_embeddings=True),
    "llama 3": lambda: _llama(rope_parameters=LLAMA3_ROPE),
    "llama, yarn": lambda: _llama(rope_parameters=YARN_ROPE),
    "qwen2": _qwen2,
    "qwen2, yarn": lambda: _qwen2(rope_parameters=YARN_ROPE | {"truncate": False, "mscale": 1, "mscale_all_dim": 0.5}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_plain_decoder_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)
