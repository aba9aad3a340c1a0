"""The step35 family, against the text model of transformers' step3p7, which has its layers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.models.family_harness import Bounds, check_family, perturb, program_of, save_directory

LAYER_TYPES = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
CONFIG: dict[str, Any] = {
    "architectures": ["Step3p5ForCausalLM"],
    "model_type": "step3p5",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "share_expert_dim": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "attention_other_setting": {"num_attention_heads": 6, "num_attention_groups": 2},
    "head_dim": 32,
    "layer_types": LAYER_TYPES,
    "sliding_window": 24,
    "moe_layers_enum": "1,2,3",
    "moe_num_experts": 8,
    "moe_top_k": 3,
    "moe_router_scaling_factor": 1.5,
    "norm_expert_weight": True,
    "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
    "rope_theta": [5000.0, 10000.0, 10000.0, 5000.0],
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 8.0,
        "original_max_position_embeddings": 64,
    },
    "swiglu_limits": [0.0, 0.0, 0.5, 0.0],
    "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.75],
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
HUB_NAMES = {
    ".mlp.gate.weight": ".moe.gate.weight",
    ".mlp.gate.e_score_correction_bias": ".moe.router_bias",
    ".mlp.experts.down_proj": ".moe.down_proj.weight",
    ".mlp.shared_experts.": ".share_expert.",
}


def _hub_name(name: str) -> str:
    for ours, hub in HUB_NAMES.items():
        name = name.replace(ours, hub)
    return name


class StepModel(nn.Module):
    """transformers' text model with a head, saved as the hub has it."""

    def __init__(self) -> None:
        super().__init__()
        values = {key: value for key, value in CONFIG.items() if key not in {"architectures", "model_type"}}
        config = Step3p7TextConfig(
            **values,
            num_key_value_heads=CONFIG["num_attention_groups"],
            n_routed_experts=CONFIG["moe_num_experts"],
            num_experts_per_tok=CONFIG["moe_top_k"],
            initializer_range=0.2,
            attn_implementation="eager",
        )
        self.model = Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, token_ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.lm_head(self.model(token_ids).last_hidden_state))

    def save_pretrained(self, folder: Path) -> None:
        tensors = {}
        for name, tensor in self.state_dict().items():
            if name.endswith(".mlp.experts.gate_up_proj"):
                stem = name.removesuffix(".mlp.experts.gate_up_proj")
                gate, up = (part.contiguous() for part in tensor.chunk(2, dim=1))
                tensors |= {f"{stem}.moe.gate_proj.weight": gate, f"{stem}.moe.up_proj.weight": up}
            else:
                tensors[_hub_name(name)] = tensor
        folder.mkdir(exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(CONFIG))


def make_model() -> StepModel:
    torch.manual_seed(0)
    model = StepModel()
    perturb(model)
    with torch.no_grad():
        for layer in model.model.layers[1:]:
            layer.mlp.gate.weight.normal_()
        model.lm_head.weight.normal_(std=0.2)
    return model


def test_step35_is_what_transformers_computes(tmp_path: Path):
    check_family(make_model(), tmp_path, bounds=Bounds(held_rows=0.8))


def test_layers_have_their_own_heads_windows_and_limits(tmp_path: Path):
    program = program_of(save_directory(make_model(), tmp_path))
    assert [layer.window for layer in program.kv_layers] == [None, 24, 24, None]
    limits = [operator.limit for operator in program if type(operator).__name__ == "Experts"]
    assert limits == [None, 0.5, None]
    assert program.buffers["q"] < program.buffers["q_local"]


def test_layers_that_draft_are_left_out(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    further = {"step35.block_count": 5, "step35.nextn_predict_layers": 1}
    program = build_program("step35", dict(checkpoint.metadata) | further, shapes | {"blk.4.nextn.hnorm.weight": (64,)})
    assert program.unused == {"blk.4.nextn.hnorm.weight": "a layer that drafts further tokens"}


def test_what_is_not_carried_out_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    metadata = dict(checkpoint.metadata)
    with pytest.raises(UnsupportedModelError, match=r"step35\.expert_gating_func is 1"):
        build_program("step35", metadata | {"step35.expert_gating_func": 1}, shapes)
    with pytest.raises(CorruptFileError, match=r"step35\.swiglu_clamp_exp is not a bound"):
        build_program("step35", metadata | {"step35.swiglu_clamp_exp": (1.0,)}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.attn_q\.bias"):
        build_program("step35", metadata, shapes | {"blk.1.attn_q.bias": (192,)})


def test_another_share_of_rotated_elements_is_refused(tmp_path: Path):
    make_model().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"partial_rotary_factors": [1.0] * 4}))
    with pytest.raises(UnsupportedModelError, match="'partial_rotary_factors'"):
        open_directory(tmp_path)
