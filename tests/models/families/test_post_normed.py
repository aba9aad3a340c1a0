"""Families that norm after each branch, or heads in ways of their own, against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.layers.operators import Rope
from memra.models.registry import build_program
from tests.models.families.test_plain_decoders import LLAMA3_ROPE, SIZES, YARN_ROPE
from tests.models.family_harness import check_family, perturb, program_of, save_directory

# Small weights in deep models: what int8 activations lose grows with the number of layers.
FOUR: dict[str, Any] = {"num_hidden_layers": 4, "sliding_window": 20, "initializer_range": 0.1, "pad_token_id": None}
PLAIN = {name: size for name, size in SIZES.items() if name != "head_dim"}


def _olmo2(**changes: Any) -> Any:
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**PLAIN | {"pad_token_id": None} | changes))


def _olmo3(**changes: Any) -> Any:
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(**PLAIN | FOUR | changes))


def _exaone4(**changes: Any) -> Any:
    return transformers.Exaone4ForCausalLM(transformers.Exaone4Config(**SIZES | FOUR | changes))


def _seed_oss() -> Any:
    return transformers.SeedOssForCausalLM(transformers.SeedOssConfig(**SIZES | {"attention_out_bias": True}))


def _hunyuan(**changes: Any) -> Any:
    return transformers.HunYuanDenseV1ForCausalLM(transformers.HunYuanDenseV1Config(**SIZES | changes))


MODELS = {
    "olmo 2": _olmo2,
    "olmo 3": lambda: _olmo3(
        rope_parameters={
            "full_attention": YARN_ROPE,
            "sliding_attention": {"rope_type": "default", "rope_theta": 7000.0},
        }
    ),
    "exaone 4": lambda: _exaone4(rope_parameters=LLAMA3_ROPE),
    "exaone 4, small": lambda: _exaone4(sliding_window=None, num_hidden_layers=2, layer_types=["full_attention"] * 2),
    "seed-oss": _seed_oss,
    "hunyuan": _hunyuan,
    "hunyuan, alpha": lambda: _hunyuan(
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_family_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


def test_every_fourth_layer_of_exaone_sees_everything_and_knows_no_positions(tmp_path: Path):
    program = program_of(save_directory(_exaone4(), tmp_path))
    assert [layer.window for layer in program.kv_layers] == [20, 20, 20, None]
    assert len([op for op in program if isinstance(op, Rope)]) == 2 * 3


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [
        (_olmo2, "rope.scaling.type", "longrope"),
        (_exaone4, "residual_scale", 0.5),
        (_seed_oss, "expert_count", 4),
        (_seed_oss, "attention.sliding_window", 4096),
        (_olmo2, "attention.scale", 0.5),
        (_exaone4, "attention.temperature_scale", 0.1),
        (_hunyuan, "final_logit_softcapping", 30.0),
        (_hunyuan, "attention.clamp_kqv", 8.0),
    ],
)
def test_what_a_family_does_not_run_is_refused_by_name(make: Any, key: str, value: object, tmp_path: Path):
    checkpoint = save_directory(make(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    name = checkpoint.architecture
    with pytest.raises(UnsupportedModelError, match=f"{name}.{key}"):
        build_program(name, {**checkpoint.metadata, f"{name}.{key}": value}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_sinks\.weight"):
        build_program(name, checkpoint.metadata, shapes | {"blk.0.attn_sinks.weight": (4,)})
