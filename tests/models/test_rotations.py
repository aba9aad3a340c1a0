"""Scaled rotations, against transformers' frequencies and ggml's formula."""

import math
from typing import Any

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from memra.errors import UnsupportedModelError
from memra.models.metadata import Metadata
from memra.models.rotations import Yarn, read_rotation, yarn_frequencies, yarn_magnitude

CASES: list[dict[str, Any]] = [
    {"factor": 4.0, "original_max_position_embeddings": 4096},
    {"factor": 32.0, "original_max_position_embeddings": 512, "truncate": False},
    {"factor": 16.0, "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 0.5},
    {"factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 2.0},
    {"factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.25},
]


def _metadata(case: dict[str, Any]) -> Metadata:
    renamed = {
        "factor": "factor",
        "original_max_position_embeddings": "original_context_length",
        "beta_fast": "yarn_beta_fast",
        "beta_slow": "yarn_beta_slow",
        "attention_factor": "yarn_attn_factor",
        "mscale_all_dim": "yarn_log_multiplier",
    }
    values = {f"x.rope.scaling.{name}": case[key] for key, name in renamed.items() if key in case}
    values |= {"x.rope.scaling.type": "yarn", "x.rope.freq_base": 150000.0, "x.context_length": 1 << 17}
    return Metadata("x", values | ({} if case.get("truncate", True) else {"memra.rope_truncate": False}))


@pytest.mark.parametrize("case", CASES)
def test_yarn_turns_as_transformers_does(case: dict[str, Any]):
    rope = {"rope_type": "yarn", "rope_theta": 150000.0} | case
    config = transformers.LlamaConfig(head_dim=64, max_position_embeddings=1 << 17, rope_parameters=rope)
    wanted, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, None)
    rotation = read_rotation(_metadata(case), rotary_dims=64)
    assert rotation.frequencies is not None
    np.testing.assert_allclose(rotation.frequencies, wanted.double().numpy(), rtol=1e-6)  # theirs is in float32
    assert rotation.magnitude == pytest.approx(magnitude)


@pytest.mark.parametrize("factor", [2.0, 40.0])
def test_yarn_turns_as_ggml_does(factor: float):
    # `ggml_rope_yarn_corr_dims` and `rope_yarn` of ggml, with the ramp as a share that keeps its frequency.
    dims, base, context = 48, 10000.0, 2048
    corrections = [dims * math.log(context / (beta * 2 * math.pi)) / (2 * math.log(base)) for beta in (32, 1)]
    start, end = max(0, math.floor(corrections[0])), min(dims - 1, math.ceil(corrections[1]))
    kept = [1 - min(1, max(0, (pair - start) / max(0.001, end - start))) for pair in range(dims // 2)]
    angles = [base ** (-2 * pair / dims) for pair in range(dims // 2)]
    wanted = [angle / factor * (1 - mix) + angle * mix for angle, mix in zip(angles, kept, strict=True)]
    got = yarn_frequencies(Yarn(factor, context), base=base, rotary_dims=dims)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert yarn_magnitude(factor) == pytest.approx(1 + 0.1 * math.log(factor))


def test_yarn_without_scaling_is_the_plain_rotation():
    plain = [10000.0 ** (-2 * pair / 16) for pair in range(8)]
    np.testing.assert_allclose(yarn_frequencies(Yarn(1.0, 4096), base=10000.0, rotary_dims=16), plain, rtol=1e-12)
    assert yarn_magnitude(1.0) == 1.0


def test_a_part_of_yarn_is_refused_by_name():
    metadata = Metadata(
        "x", {"x.rope.scaling.type": "yarn", "x.rope.scaling.yarn_ext_factor": 0.5, "x.context_length": 1}
    )
    with pytest.raises(UnsupportedModelError, match=r"x\.rope\.scaling\.yarn_ext_factor"):
        read_rotation(metadata, rotary_dims=16)
