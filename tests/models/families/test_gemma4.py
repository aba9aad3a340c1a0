"""Gemma 4 against transformers: heads that differ by layer, shared keys and values, token vectors, experts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.layers.operators import Attention
from memra.loading.checkpoint import Checkpoint
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.models.family_harness import check_family, perturb, program_of, save_directory

LOCAL, GLOBAL = "sliding_attention", "full_attention"
SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "vocab_size_per_layer_input": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 0,
    "max_position_embeddings": 512,
    "sliding_window": 20,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
SMALL: dict[str, Any] = {
    "num_hidden_layers": 6,
    "layer_types": [LOCAL, GLOBAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 32,
    "final_logit_softcapping": 5.0,
}
"""As E2B and E4B are built."""
LARGE: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": [LOCAL, LOCAL, GLOBAL],
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}
"""As the 31B is built."""
MIXTURE: dict[str, Any] = {
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 4,
    "moe_intermediate_size": 32,
}


def _gemma4(changes: dict[str, Any]) -> Any:
    return transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**SIZES | changes))


def _with_towers() -> Any:
    tower = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = tower | {"intermediate_size": 32, "num_key_value_heads": 2, "head_dim": 16}
    sound = tower | {"subsampling_conv_channels": [8, 8], "output_proj_dims": 32}
    config = transformers.Gemma4Config(text_config=SIZES | SMALL, vision_config=vision, audio_config=sound)
    config._attn_implementation = "eager"
    return transformers.Gemma4ForConditionalGeneration(config)


def _unified() -> Any:
    vision = {"patch_size": 2, "mm_embed_dim": 32}
    config = transformers.Gemma4UnifiedConfig(text_config=SIZES | LARGE, vision_config=vision, audio_config={})
    config._attn_implementation = "eager"
    return transformers.Gemma4UnifiedForConditionalGeneration(config)


MODELS: dict[str, Callable[[], Any]] = {
    "small": lambda: _gemma4(SMALL),
    "large": lambda: _gemma4(LARGE),
    "with experts": lambda: _gemma4(LARGE | MIXTURE),
    "with towers": _with_towers,
    "unified": _unified,
}


def _make(kind: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[kind]()
    perturb(model)
    with torch.no_grad():
        for name, values in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("layer_scalar"):
                values.fill_(0.8)
            elif name.endswith("q_norm.weight"):  # nothing else divides scores: random ones are far too sharp
                values.mul_(0.3)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_gemma4_is_what_transformers_computes(name: str, tmp_path: Path):
    check_family(_make(name), tmp_path)


def _build(checkpoint: Checkpoint, metadata: dict[str, object], shapes: dict[str, tuple[int, ...]]) -> None:
    own = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    build_program("gemma4", {**checkpoint.metadata, **metadata}, own | shapes)


def test_the_last_layers_keep_no_keys_and_read_those_of_the_last_layer_of_their_kind(tmp_path: Path):
    program = program_of(save_directory(_make("small"), tmp_path))
    attentions = [operator for operator in program if isinstance(operator, Attention)]
    assert len(program.kv_layers) == 4
    assert [(operator.k is None, operator.layer) for operator in attentions[4:]] == [(True, 2), (True, 3)]


def test_matrices_that_shared_layers_never_read_are_left_unread(tmp_path: Path):
    checkpoint = save_directory(_make("small"), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    left = {"blk.5.attn_k.weight": (64, 64), "blk.5.attn_k_norm.weight": (32,)}
    program = build_program("gemma4", checkpoint.metadata, shapes | left)
    assert left.keys() == (program.unused or {}).keys()


@pytest.mark.parametrize(
    ("key", "value"), [("gemma4.expert_gating_func", 2), ("gemma4.attention.clamp_kqv", 8.0), ("gemma4.logit_scale", 2)]
)
def test_a_key_that_changes_the_computation_is_refused_by_name(key: str, value: object, tmp_path: Path):
    checkpoint = save_directory(_make("with experts"), tmp_path)
    with pytest.raises(UnsupportedModelError, match=key):
        _build(checkpoint, {key: value}, {})


def test_layers_of_more_than_two_kinds_are_refused(tmp_path: Path):
    model = _make("large")
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["per_layer_config"]["0"] = {"head_dim": 32}
    path.write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="per_layer_config"):
        open_directory(tmp_path)


def test_an_unknown_tensor_is_refused_by_name(tmp_path: Path):
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_sinks\.weight"):
        _build(save_directory(_make("large"), tmp_path), {}, {"blk.0.attn_sinks.weight": (4,)})
