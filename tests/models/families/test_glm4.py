"""GLM-4 and GLM-4.5, against transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from memra.errors import UnsupportedModelError
from memra.layers.operators import Rope, RopeStyle
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import prefill
from tests.models.families.test_plain_decoders import SIZES
from tests.models.family_harness import (
    check_family,
    perturb,
    program_of,
    random_tokens,
    save_directory,
    sequence,
    torch_executor,
    transformers_logits,
)

# Small weights: what int8 activations lose grows with the number of layers, and turns a router's choice.
MIXTURE: dict[str, Any] = SIZES | {
    "num_hidden_layers": 3,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
    "initializer_range": 0.1,
    "head_dim": 32,
    "attention_bias": True,
}


def _glm4(**changes: Any) -> Any:
    config = transformers.Glm4Config(**SIZES | {"head_dim": 32, "pad_token_id": None} | changes)
    return transformers.Glm4ForCausalLM(config)


def _glm4moe(**changes: Any) -> Any:
    return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(**MIXTURE | changes))


MODELS = {
    "glm 4": _glm4,
    "glm 4.5 air": _glm4moe,
    "glm 4.5": lambda: _glm4moe(
        use_qk_norm=True, norm_topk_prob=False, first_k_dense_replace=0, initializer_range=0.05
    ),
    "groups of experts": lambda: _glm4moe(n_group=4, topk_group=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_glm_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


def test_a_layer_that_drafts_is_known_and_not_read(tmp_path: Path):
    torch.manual_seed(0)
    model = _glm4moe()
    save_directory(model, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    draft = {
        name.replace("layers.2.", "layers.3."): tensor.clone() for name, tensor in stored.items() if "layers.2." in name
    }
    draft |= {f"model.layers.3.{name}.weight": torch.ones(64) for name in ("enorm", "hnorm", "shared_head.norm")}
    draft |= {"model.layers.3.eh_proj.weight": torch.ones(64, 128)}
    save_file(stored | draft, tmp_path / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_directory(tmp_path)
    program = program_of(checkpoint)
    assert len(program.kv_layers) == 3
    assert {name.split(".")[1] for name in program.unused} == {"3"}
    token_ids = random_tokens(128, 20)
    with torch_executor(checkpoint) as executor:
        logits = prefill(executor, sequence(executor, token_ids), 20)
    assert np.abs(logits - transformers_logits(model, token_ids)).max() < 1e-3


def test_a_file_made_for_pictures_too_is_rotated_by_halves(tmp_path: Path):
    checkpoint = save_directory(_glm4(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    for sections, style in (([8, 12, 12, 0], RopeStyle.HALVES), ([0, 0, 0, 0], RopeStyle.INTERLEAVED)):
        program = build_program("glm4", {**checkpoint.metadata, "glm4.rope.dimension_sections": sections}, shapes)
        assert {op.style for op in program if isinstance(op, Rope)} == {style}


def test_what_glm_does_not_run_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_glm4moe(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"glm4moe\.expert_gating_func is 1"):
        build_program("glm4moe", {**checkpoint.metadata, "glm4moe.expert_gating_func": 1}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.post_ffw_norm\.weight"):
        build_program("glm4moe", checkpoint.metadata, shapes | {"blk.0.post_ffw_norm.weight": (64,)})
