"""The qwen3 families, dense and with experts, against transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.layers.program import Pooling
from memra.models.registry import build_program
from tests.models.families.test_plain_decoders import SIZES, YARN_ROPE
from tests.models.family_harness import (
    check_cuts,
    check_family,
    perturb,
    program_of,
    random_tokens,
    save_directory,
    torch_executor,
)

EXPERTS: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}


def _qwen3(**changes: Any) -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES | {"head_dim": 32} | changes))


def _qwen3moe(**changes: Any) -> Any:
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SIZES | EXPERTS | changes))


MODELS = {
    "qwen3": _qwen3,
    "qwen3, tied": lambda: _qwen3(tie_word_embeddings=True),
    "qwen3, with biases": lambda: _qwen3(attention_bias=True),
    "qwen3, yarn": lambda: _qwen3(rope_parameters=YARN_ROPE),
    "qwen3moe": lambda: _qwen3moe(norm_topk_prob=True),
    "qwen3moe, weights as they are": _qwen3moe,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_qwen3_model_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_family(model, tmp_path)


def test_keys_that_change_a_mixture_are_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_qwen3moe(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    for key, value in (("expert_gating_func", 2), ("expert_group_count", 4), ("attention.sliding_window", 128)):
        with pytest.raises(UnsupportedModelError, match=rf"qwen3moe\.{key} is {value}"):
            build_program("qwen3moe", dict(checkpoint.metadata) | {f"qwen3moe.{key}": value}, shapes)


def test_a_dense_model_has_no_experts(tmp_path: Path):
    checkpoint = save_directory(_qwen3(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"qwen3\.expert_count is 8"):
        build_program("qwen3", dict(checkpoint.metadata) | {"qwen3.expert_count": 8}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"the tensor blk\.1\.ffn_gate_inp\.weight"):
        build_program("qwen3", checkpoint.metadata, shapes | {"blk.1.ffn_gate_inp.weight": (8, 64)})


def test_older_files_give_the_width_of_all_used_experts(tmp_path: Path):
    checkpoint = save_directory(_qwen3moe(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    metadata = dict(checkpoint.metadata)
    assert metadata.pop("qwen3moe.expert_feed_forward_length") == metadata["qwen3moe.feed_forward_length"] // 3
    assert build_program("qwen3moe", metadata, shapes).weights["blk.0.ffn_gate_exps.weight"] == (6, 32, 64)


def test_an_embedding_directory_needs_no_head_and_no_prefix_of_a_language_model(tmp_path: Path):
    torch.manual_seed(0)
    model = transformers.Qwen3Model(transformers.Qwen3Config(**SIZES | {"head_dim": 32}))
    perturb(model)
    tmp_path.joinpath("1_Pooling").mkdir()
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    tmp_path.joinpath("modules.json").write_text(json.dumps(modules), encoding="utf-8")
    tmp_path.joinpath("1_Pooling", "config.json").write_text('{"pooling_mode_lasttoken": true}', encoding="utf-8")
    checkpoint = save_directory(model, tmp_path)
    program = program_of(checkpoint)
    assert (program.pooling, program.output_width) == (Pooling.LAST, 64)
    token_ids = random_tokens(program.vocab_size)
    with torch_executor(checkpoint) as executor, torch.inference_mode():
        rows = check_cuts(executor, token_ids)
        wanted = model.eval()(torch.tensor([token_ids])).last_hidden_state[0].numpy()
    assert np.abs(rows - wanted).max() < 1e-3


def test_a_reranker_has_two_labels(tmp_path: Path):
    checkpoint = save_directory(_qwen3(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    metadata = {**checkpoint.metadata, "qwen3.pooling_type": 4}
    assert build_program("qwen3", metadata, shapes | {"cls.output.weight": (2, 64)}).output_width == 1
    with pytest.raises(CorruptFileError, match=r"cls\.output\.weight has 3 rows"):
        build_program("qwen3", metadata, shapes | {"cls.output.weight": (3, 64)})
    with pytest.raises(CorruptFileError, match=r"lacks the tensor cls\.output\.weight"):
        build_program("qwen3", metadata, shapes)
