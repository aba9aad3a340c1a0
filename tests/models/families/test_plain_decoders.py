"""Families of plain decoders, against transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.models.registry import build_program
from tests.models.family_harness import check_family, perturb, program_of, save_directory

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


def _mistral(**changes: Any) -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES | {"sliding_window": None} | changes))


def _ministral3(**changes: Any) -> Any:
    rope = YARN_ROPE | {"original_max_position_embeddings": 20, "llama_4_scaling_beta": 0.3}
    rope |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    return transformers.Ministral3ForCausalLM(
        transformers.Ministral3Config(**SIZES | {"rope_parameters": rope} | changes)
    )


def _mistral3_with_a_tower() -> Any:
    rope = YARN_ROPE | {"original_max_position_embeddings": 20, "llama_4_scaling_beta": 0.3}
    # Smaller weights than the others': scores that float16 keys move less.
    text = SIZES | {"model_type": "ministral3", "rope_parameters": rope, "initializer_range": 0.1}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"model_type": "pixtral", "head_dim": 16, "image_size": 32, "patch_size": 16}
    config = transformers.Mistral3Config(text_config=text, vision_config=vision, attn_implementation="eager")
    return transformers.Mistral3ForConditionalGeneration(config)


def _mixtral() -> Any:
    # Smaller weights than the others': branches that a router's changed choice moves less.
    sizes = SIZES | {"num_local_experts": 8, "num_experts_per_tok": 2, "initializer_range": 0.05}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes))


def _smollm3(**changes: Any) -> Any:
    # Smaller weights than the others': what int8 activations lose grows with the number of layers.
    sizes = SIZES | {"num_hidden_layers": 5, "pad_token_id": None, "initializer_range": 0.1}
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**sizes | changes))


SCALES = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.11, "logits_scaling": 2.5}


def _granite(**changes: Any) -> Any:
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(**SIZES | SCALES | changes))


MIXTURE = SIZES | SCALES | {"num_local_experts": 8, "num_experts_per_tok": 3, "initializer_range": 0.1}


def _granitemoe(**changes: Any) -> Any:
    return transformers.GraniteMoeForCausalLM(transformers.GraniteMoeConfig(**MIXTURE | changes))


def _granitemoeshared() -> Any:
    config = transformers.GraniteMoeSharedConfig(**MIXTURE, shared_intermediate_size=48)
    return transformers.GraniteMoeSharedForCausalLM(config)


def _qwen2(**changes: Any) -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES | changes))


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "llama, tied": lambda: _llama(tie_word_embeddings=True),
    "llama 3": lambda: _llama(rope_parameters=LLAMA3_ROPE),
    "llama, yarn": lambda: _llama(rope_parameters=YARN_ROPE),
    "mistral": _mistral,
    "mistral, window": lambda: _mistral(sliding_window=24),
    "ministral 3": _ministral3,
    "mistral 3, with a tower": _mistral3_with_a_tower,
    "mixtral": _mixtral,
    "smollm3": _smollm3,
    "smollm3, other layers": lambda: _smollm3(no_rope_layers=[0, 1, 1, 0, 1], tie_word_embeddings=False),
    "granite": _granite,
    "granitemoe": _granitemoe,
    "granitemoe, shared": _granitemoeshared,
    "qwen2": _qwen2,
    "qwen2, yarn": lambda: _qwen2(rope_parameters=YARN_ROPE | {"truncate": False, "mscale": 1, "mscale_all_dim": 0.5}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_plain_decoder_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("granite", "rope.scaling.type", "longrope"),
        ("granite", "attention.clamp_kqv", 8.0),
        ("granitemoe", "pooling_type", 3),
        ("mistral3", "expert_gating_func", 2),
        ("mistral3", "attention.sliding_window_pattern", 4),
        ("smollm3", "residual_scale", 0.5),
    ],
)
def test_what_a_relative_of_llama_does_not_run_is_refused_by_name(architecture: str, key: str, value: object):
    sizes = {"block_count": 2, "embedding_length": 32, "attention.head_count": 2, "feed_forward_length": 32}
    sizes |= {"attention.layer_norm_rms_epsilon": 1e-5, "context_length": 64, "expert_count": 0, "expert_used_count": 1}
    sizes |= {"expert_count": 4} if architecture == "granitemoe" or key == "expert_gating_func" else {}
    metadata = {f"{architecture}.{name}": size for name, size in (sizes | {key: value}).items()}
    with pytest.raises(UnsupportedModelError, match=rf"{architecture}\.{key}"):
        build_program(architecture, metadata, {"token_embd.weight": (97, 32)})


def test_the_window_of_an_old_mistral_holds_in_every_layer(tmp_path: Path):
    program = program_of(save_directory(_mistral(sliding_window=24), tmp_path))
    assert [layer.window for layer in program.kv_layers] == [24, 24]
