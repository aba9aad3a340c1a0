"""The deepseek2 family, against transformers, and files that keep keys and values by head."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np
import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import prefill
from tests.models.family_harness import (
    NUM_TOKENS,
    Bounds,
    check_cuts,
    check_family,
    native_executor,
    perturb,
    random_tokens,
    save_directory,
    sequence,
    torch_executor,
    write_gguf,
)

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "routed_scaling_factor": 1.5,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
GROUPS = {"n_group": 4, "topk_group": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 4,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}


def make_v2(**changes: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**SIZES | changes))
    return _stirred(model)


def make_v3(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.DeepseekV3Config(**SIZES | GROUPS | {"num_mtp_layers": 0} | changes)
    return _stirred(transformers.DeepseekV3ForCausalLM(config))


def make_glm(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = SIZES | {"mlp_layer_types": ["dense", "sparse", "sparse"], "rms_norm_eps": 1e-6} | changes
    del sizes["first_k_dense_replace"]
    return _stirred(transformers.Glm4MoeLiteForCausalLM(transformers.Glm4MoeLiteConfig(**sizes)))


def _stirred(model: Any) -> Any:
    perturb(model)
    with torch.no_grad():
        for layer in model.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.weight.normal_()
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "v2, groups": lambda: make_v2(topk_method="group_limited_greedy", rope_parameters=YARN, **GROUPS),
    "v2-lite": lambda: make_v2(q_lora_rank=None),
    "v3": lambda: make_v3(rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}),
    "glm 4.7 flash": make_glm,
    "v3, plain sums": lambda: make_v3(norm_topk_prob=False, n_group=1, topk_group=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_deepseek_is_what_transformers_computes(name: str, tmp_path: Path):
    check_family(MODELS[name](), tmp_path, bounds=Bounds(held_rows=0.8))


def _cut_heads(checkpoint: Checkpoint, kind: str) -> Checkpoint:
    """The same model as converters write it today: keys and values cut, the keys' matrices turned, both of a type."""
    heads, plain, value, rank = (
        SIZES[key] for key in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    tensors = dict(checkpoint.tensors)
    for index in range(SIZES["num_hidden_layers"]):
        whole = tensors.pop(f"blk.{index}.attn_kv_b.weight").dequantise().reshape(heads, plain + value, rank)
        for part, values in (("k", whole[:, :plain].transpose(0, 2, 1)), ("v", whole[:, plain:])):
            name = f"blk.{index}.attn_{part}_b.weight"
            stored = gguf.quants.quantize(np.ascontiguousarray(values), gguf.GGMLQuantizationType[kind])
            tensors[name] = StoredTensor(name, values.shape, kind, stored.reshape(-1).view(np.uint8))
    metadata = dict(checkpoint.metadata)
    for part in ("key", "value"):
        metadata[f"deepseek2.attention.{part}_length_mla"] = metadata[f"deepseek2.attention.{part}_length"]
    metadata["deepseek2.attention.key_length"] = rank + SIZES["qk_rope_head_dim"]
    metadata["deepseek2.attention.value_length"] = rank
    return Checkpoint(
        checkpoint.path, metadata=metadata, read_vocabulary=dict, tensors=tensors, size_bytes=0, identity=""
    )


def test_keys_and_values_that_are_kept_by_head_are_the_same_model(tmp_path: Path):
    directory = save_directory(MODELS["v3"](), tmp_path / "directory")
    token_ids = random_tokens(SIZES["vocab_size"])
    with torch_executor(directory) as executor:
        wanted = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    with torch_executor(write_gguf(_cut_heads(directory, "F32"), tmp_path / "cut.gguf")) as executor:
        got = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    assert np.abs(got - wanted).max() < Bounds().oracle


def test_quantised_heads_are_turned_without_loss(tmp_path: Path):
    directory = save_directory(MODELS["v3"](), tmp_path / "directory")
    cut = _cut_heads(directory, "Q8_0")
    opened = write_gguf(cut, tmp_path / "cut.gguf")
    name = "blk.0.attn_k_b.weight"
    values = cut.tensors[name].dequantise().transpose(0, 2, 1).reshape(-1, SIZES["kv_lora_rank"])
    np.testing.assert_array_equal(opened.tensors[name].dequantise(), values)
    np.testing.assert_array_equal(opened.tensors[name].rows(40, 70), values[40:70])  # over the end of the first head
    token_ids = random_tokens(SIZES["vocab_size"])
    with torch_executor(opened) as executor:
        wanted = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    with native_executor(opened) as executor:
        got = check_cuts(executor, token_ids)
    assert np.median(np.abs(got - wanted).max(axis=1)) < Bounds().quantised * np.abs(wanted).max()


def test_layers_that_draft_are_left_out(tmp_path: Path):
    checkpoint = save_directory(MODELS["v3"](), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    further = {"deepseek2.block_count": 4, "deepseek2.nextn_predict_layers": 1}
    program = build_program(
        "deepseek2", dict(checkpoint.metadata) | further, shapes | {"blk.3.nextn.eh_proj.weight": (64, 128)}
    )
    assert len(program.kv_layers) == SIZES["num_hidden_layers"]
    assert program.unused == {"blk.3.nextn.eh_proj.weight": "a layer that drafts further tokens"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("attention.temperature_scale", 0.1), ("expert_gating_func", 4), ("rope.scaling.type", "longrope")],
)
def test_what_is_not_carried_out_is_refused_by_name(key: str, value: object, tmp_path: Path):
    checkpoint = save_directory(MODELS["v2-lite"](), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=rf"deepseek2\.{key} is {value!r}"):
        build_program("deepseek2", dict(checkpoint.metadata) | {f"deepseek2.{key}": value}, shapes)


def test_a_dense_layer_behind_experts_is_refused(tmp_path: Path):
    make_glm(mlp_layer_types=["sparse", "dense", "sparse"]).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="dense layers behind"):
        open_directory(tmp_path)


def test_an_unknown_tensor_is_refused(tmp_path: Path):
    checkpoint = save_directory(MODELS["v2-lite"](), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.attn_q_a\.bias"):
        build_program("deepseek2", checkpoint.metadata, shapes | {"blk.1.attn_q_a.bias": (48,)})
