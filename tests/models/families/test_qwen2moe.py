"""The qwen2moe family against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.models.registry import build_program
from tests.models.families.test_plain_decoders import SIZES
from tests.models.families.test_qwen3 import EXPERTS
from tests.models.family_harness import check_family, perturb, save_directory


def _qwen2moe(**changes: Any) -> Any:
    sizes = SIZES | EXPERTS | {"shared_expert_intermediate_size": 64, "initializer_range": 0.1}
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(**sizes | changes))


MODELS = {"qwen2moe": _qwen2moe, "qwen2moe, weights of sum 1": lambda: _qwen2moe(norm_topk_prob=True)}


@pytest.mark.parametrize("name", MODELS)
def test_a_qwen2_mixture_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


def test_another_router_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_qwen2moe(), tmp_path / "plain")
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"the tensor blk\.0\.exp_probs_b\.bias"):
        build_program("qwen2moe", checkpoint.metadata, shapes | {"blk.0.exp_probs_b.bias": (6,)})
    with pytest.raises(UnsupportedModelError, match=r"qwen2moe\.expert_gating_func is 2"):
        build_program("qwen2moe", dict(checkpoint.metadata) | {"qwen2moe.expert_gating_func": 2}, shapes)


def test_directories_with_some_dense_layers_are_refused_by_the_tensor(tmp_path: Path):
    with pytest.raises(UnsupportedModelError, match=r"model\.layers\.0\.mlp\.(gate|up|down)_proj\.weight"):
        save_directory(_qwen2moe(mlp_only_layers=[0]), tmp_path)
