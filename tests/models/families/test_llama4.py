"""The llama4 family, against transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from memra.errors import UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.models.family_harness import Bounds, check_family, perturb, program_of, save_directory

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 32,
    "intermediate_size_mlp": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 40,
    "floor_scale": 20,
    "attn_scale": 0.3,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
SCOUT_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}


def make_model(**changes: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**SIZES | changes))
    perturb(model)
    with torch.no_grad():
        for layer in model.model.layers:
            if layer.is_moe_layer:
                layer.feed_forward.router.weight.normal_(std=0.5)
                layer.feed_forward.experts.gate_up_proj.normal_(std=0.2)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "scout": lambda: make_model(interleave_moe_layer_step=1, rope_parameters=SCOUT_ROPE),
    "maverick": lambda: make_model(use_qk_norm=False, num_experts_per_tok=1),
    "without temperature": lambda: make_model(attn_temperature_tuning=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_llama4_is_what_transformers_computes(name: str, tmp_path: Path):
    check_family(MODELS[name](), tmp_path, bounds=Bounds(held_rows=0.8))


def test_files_of_the_published_sizes_need_not_say_what_all_have(tmp_path: Path):
    checkpoint = save_directory(make_model(attention_chunk_size=8192, floor_scale=8192, attn_scale=0.1), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    said = ("llama4.attention.sliding_window", "llama4.attention.temperature", "memra.qk_norm")
    metadata = {key: value for key, value in checkpoint.metadata.items() if not key.startswith(said)}
    assert build_program("llama4", metadata, shapes) == program_of(checkpoint)


def test_a_directory_with_a_tower_for_images_opens_as_its_text_model(tmp_path: Path):
    plain = save_directory(make_model(), tmp_path)
    tensors = {f"language_model.{name}": tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    tensors |= {
        "vision_model.class_embedding": torch.ones(8),
        "multi_modal_projector.linear_1.weight": torch.ones(8, 8),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    nested = {"architectures": ["Llama4ForConditionalGeneration"], "text_config": config}
    (tmp_path / "config.json").write_text(json.dumps(nested))
    checkpoint = open_directory(tmp_path)
    assert program_of(checkpoint) == program_of(plain)


def test_rotated_layers_without_chunks_are_refused(tmp_path: Path):
    save_directory(make_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"layer_types": ["full_attention"] * 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="attend in chunks"):
        open_directory(tmp_path)


def test_what_is_not_carried_out_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"llama4\.attention\.sliding_window is 0"):
        build_program("llama4", dict(checkpoint.metadata) | {"llama4.attention.sliding_window": 0}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q_norm\.weight"):
        build_program("llama4", checkpoint.metadata, shapes | {"blk.0.attn_q_norm.weight": (16,)})
