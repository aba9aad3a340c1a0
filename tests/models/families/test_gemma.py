"""Gemma 2 and 3 against transformers: caps, norms around each branch, windows in some of the layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.models.registry import build_program
from tests.models.family_harness import check_family, perturb, save_directory

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "sliding_window": 20,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}


def _gemma2(**changes: Any) -> Any:
    sizes = SIZES | {"num_hidden_layers": 4, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**sizes | changes))


def _gemma3(**changes: Any) -> Any:
    sizes = SIZES | {"num_hidden_layers": 7, "query_pre_attn_scalar": 24}
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**sizes | changes))


def _gemma3_with_vision() -> Any:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = SIZES | {"num_hidden_layers": 2}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    config._attn_implementation = "eager"
    return transformers.Gemma3ForConditionalGeneration(config)


MODELS: dict[str, Callable[[], Any]] = {
    "gemma2": lambda: _gemma2(final_logit_softcapping=5.0),
    "gemma2, uncapped": lambda: _gemma2(final_logit_softcapping=None, attn_logit_softcapping=None),
    "gemma3": _gemma3,
    "gemma3, with a vision tower": _gemma3_with_vision,
    "gemma3, scaled": lambda: _gemma3(
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
        },
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_gemma_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


@pytest.mark.parametrize("make", [_gemma2, _gemma3])
def test_a_tensor_that_no_gemma_has_is_refused_by_name(make: Callable[..., Any], tmp_path: Path):
    checkpoint = save_directory(make(num_hidden_layers=2), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.attn_sinks\.weight"):
        build_program(checkpoint.architecture, checkpoint.metadata, shapes | {"blk.1.attn_sinks.weight": (4,)})


def test_a_gemma_with_a_key_that_no_family_carries_out_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_gemma2(num_hidden_layers=2), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"gemma2\.attention\.clamp_kqv"):
        build_program("gemma2", {**checkpoint.metadata, "gemma2.attention.clamp_kqv": 8.0}, shapes)
