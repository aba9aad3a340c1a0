"""The minimax-m2 family, against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.models.family_harness import Bounds, check_family, perturb, save_directory

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "attn_implementation": "eager",
}


def make_model() -> Any:
    torch.manual_seed(0)
    model = transformers.MiniMaxM2ForCausalLM(transformers.MiniMaxM2Config(**SIZES))
    perturb(model)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate.weight.normal_()
    return model


def test_minimax_m2_is_what_transformers_computes(tmp_path: Path):
    check_family(make_model(), tmp_path, bounds=Bounds(held_rows=0.8))


def test_the_published_name_of_the_rotated_part_is_read(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"rotary_dim": 16, "rope_theta": 10000.0}
    del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert open_directory(tmp_path).metadata == checkpoint.metadata
    assert checkpoint.metadata["minimax-m2.rope.dimension_count"] == 16


def test_what_is_not_carried_out_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"minimax-m2\.expert_gating_func is 1"):
        build_program("minimax-m2", dict(checkpoint.metadata) | {"minimax-m2.expert_gating_func": 1}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_gate_shexp\.weight"):
        build_program("minimax-m2", checkpoint.metadata, shapes | {"blk.0.ffn_gate_shexp.weight": (32, 64)})
