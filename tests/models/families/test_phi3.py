"""Phi 3 and 4, against transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import UnsupportedModelError
from memra.layers.operators import Rope
from memra.models.registry import build_program
from tests.models.families.test_plain_decoders import SIZES
from tests.models.family_harness import check_family, perturb, program_of, save_directory

SHORT = [1.0 + 0.125 * pair for pair in range(8)]
LONG = [1.0 + 0.5 * pair for pair in range(8)]


def _phi3(**changes: Any) -> Any:
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"} | {"pad_token_id": None}
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**sizes | changes))


def _longrope(original: int, *, share: float = 1.0, **changes: Any) -> Any:
    pairs = int(8 * share)
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": share}
    rope |= {"short_factor": SHORT[:pairs], "long_factor": LONG[:pairs], "original_max_position_embeddings": original}
    return _phi3(rope_parameters=rope | changes, original_max_position_embeddings=original)


MODELS = {
    "phi 3": _phi3,
    "phi 3, window": lambda: _phi3(sliding_window=20),
    "long factors": lambda: _longrope(32),
    "short factors": lambda: _longrope(512, attention_factor=1.2),
    "phi 4 mini": lambda: _longrope(32, share=0.75),
}


@pytest.mark.parametrize("name", MODELS)
def test_phi3_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


def test_a_context_up_to_the_original_one_takes_the_short_factors(tmp_path: Path):
    checkpoint = save_directory(_longrope(64), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    for context_tokens, kind in ((65, "long"), (64, "short")):
        program = build_program("phi3", {**checkpoint.metadata, "phi3.context_length": context_tokens}, shapes)
        assert {op.frequency_factors for op in program if isinstance(op, Rope)} == {f"rope_factors_{kind}.weight"}
        assert len(program.unused) == 1


def test_a_window_beyond_the_context_is_none(tmp_path: Path):
    program = program_of(save_directory(_phi3(sliding_window=262144), tmp_path))
    assert {layer.window for layer in program.kv_layers} == {None}


def test_factors_with_another_scaling_are_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_longrope(64), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"phi3\.rope\.scaling\.type is 'yarn'"):
        build_program("phi3", {**checkpoint.metadata, "phi3.rope.scaling.type": "yarn"}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q_norm\.weight"):
        build_program("phi3", checkpoint.metadata, shapes | {"blk.0.attn_q_norm.weight": (16,)})
