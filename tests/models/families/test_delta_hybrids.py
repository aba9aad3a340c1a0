"""The families of delta nets beside gated attention: qwen3next, qwen35 and qwen35moe, against transformers."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, prefill, run_rows
from tests.models.families.test_plain_decoders import LLAMA3_ROPE, SIZES, YARN_ROPE
from tests.models.families.test_qwen3 import EXPERTS
from tests.models.family_harness import (
    Bounds,
    check_family,
    native_executor,
    perturb,
    program_of,
    random_tokens,
    save_directory,
    sequence,
    torch_executor,
    transformers_logits,
    write_gguf,
)

KEY_HEADS, VALUE_HEADS, HEAD_DIM = 2, 6, 16
HYBRID: dict[str, Any] = SIZES | {
    "initializer_range": 0.05,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": HEAD_DIM,
    "linear_value_head_dim": HEAD_DIM,
}
SHARED = EXPERTS | {"shared_expert_intermediate_size": 64}
BOUNDS = Bounds(oracle=1e-4, quantised=0.12)
"""Keys of length 1 and routers make these models as sensitive as that: rounding the weights to Q8_0 moves their logits
by 0.04 to 0.05 of the standard deviation, int8 activations by 0.03 to 0.09."""


def _qwen3next(**changes: Any) -> Any:
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**HYBRID | SHARED | changes))


def _qwen35(**changes: Any) -> Any:
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**HYBRID | changes))


def _qwen35moe(**changes: Any) -> Any:
    return transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**HYBRID | SHARED | changes))


def _qwen35_with_tower(**changes: Any) -> Any:
    tower = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}
    config = transformers.Qwen3_5Config(
        text_config=HYBRID | changes, vision_config=tower | {"num_position_embeddings": 16}, tie_word_embeddings=True
    )
    return transformers.Qwen3_5ForConditionalGeneration._from_config(config, attn_implementation="eager")


MODELS: dict[str, Callable[[], Any]] = {
    "qwen3next": _qwen3next,
    "qwen3next, a head each, weights as they are, biases": partial(
        _qwen3next, linear_num_value_heads=KEY_HEADS, norm_topk_prob=False, attention_bias=True
    ),
    "qwen35": _qwen35,
    "qwen35, wide values, attention first": partial(
        _qwen35,
        linear_value_head_dim=32,
        layer_types=["full_attention", "linear_attention"],
        num_hidden_layers=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
    ),
    "qwen35, yarn": partial(_qwen35, rope_parameters=YARN_ROPE | {"partial_rotary_factor": 0.5}),
    "qwen35, frequency factors": partial(_qwen35, rope_parameters=LLAMA3_ROPE | {"partial_rotary_factor": 1.0}),
    "qwen35, beside a tower": _qwen35_with_tower,
    "qwen35moe": _qwen35moe,
}
RECURRENT = {"qwen3next": _qwen3next, "qwen35": _qwen35}


def _make(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    model = make()
    perturb(model)
    return model


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}


def _with_tensors(
    checkpoint: Checkpoint, metadata: dict[str, object], values: dict[str, NDArray[np.float32]]
) -> Checkpoint:
    tensors = {
        name: StoredTensor(name, array.shape, "F32", np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8))
        for name, array in values.items()
    }
    return Checkpoint(
        checkpoint.path,
        metadata=metadata,
        read_vocabulary=lambda: checkpoint.vocabulary,
        tensors=tensors,
        size_bytes=0,
        identity="made for a test",
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_hybrid_is_what_transformers_computes(name: str, tmp_path: Path):
    check_family(_make(MODELS[name]), tmp_path, bounds=BOUNDS)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("make_executor", [torch_executor, native_executor])
def test_a_snapshot_is_gone_on_from_by_several_sequences_and_at_any_token(
    name: str, make_executor: Callable[..., Any], tmp_path: Path
):
    directory = save_directory(_make(RECURRENT[name]), tmp_path)
    token_ids = random_tokens(128)
    other_ids = token_ids[:64] + random_tokens(128, 32, seed=2)
    with make_executor(directory) as executor:
        logits = prefill(executor, sequence(executor, token_ids), len(token_ids))
        state = executor.export_state(0)
        other_logits = prefill(executor, sequence(executor, other_ids, state=2), len(other_ids))
        other_state = executor.export_state(2)
        # A snapshot amid a chunk of 64, gone on from in chunks of 5.
        run_rows(executor, [Run(token_ids[:37], [0, 1], state_out=4)])
        resumed = prefill(executor, Run(token_ids[37:], [0, 1], 37, state_in=4, state_out=5), 5)
        np.testing.assert_array_equal(resumed, logits[37:])
        assert executor.export_state(5) == state
        # One snapshot, two sequences in one step on pages of their own behind the shared one.
        run_rows(executor, [Run(token_ids[:64], [0, 1], state_out=4)])
        snapshot = executor.export_state(4)
        branches = [
            Run(token_ids[64:], [0, 1], 64, state_in=4, state_out=5),
            Run(other_ids[64:], [0, 3], 64, state_in=4, state_out=6),
        ]
        first, second = run_rows(executor, branches)
        np.testing.assert_array_equal(first, logits[64:])
        np.testing.assert_array_equal(second, other_logits[64:])
        assert [executor.export_state(index) for index in (4, 5, 6)] == [snapshot, state, other_state]


def _tiled(values: NDArray[np.float32], *, head: int, begin: int = 0, axis: int = 0) -> NDArray[np.float32]:
    """Put value heads of `head` elements, from `begin` on, in llama.cpp's order: the first of each key head first."""
    order = np.arange(VALUE_HEADS * head).reshape(KEY_HEADS, -1, head).transpose(1, 0, 2).reshape(-1)
    return np.take(values, np.concatenate([np.arange(begin), begin + order]), axis=axis)


_TILED_PARTS: dict[str, dict[str, int]] = {
    "attn_qkv.weight": {"head": HEAD_DIM, "begin": 2 * KEY_HEADS * HEAD_DIM},
    "ssm_conv1d.weight": {"head": HEAD_DIM, "begin": 2 * KEY_HEADS * HEAD_DIM},
    "attn_gate.weight": {"head": HEAD_DIM},
    "ssm_beta.weight": {"head": 1},
    "ssm_alpha.weight": {"head": 1},
    "ssm_a": {"head": 1},
    "ssm_dt.bias": {"head": 1},
    "ssm_out.weight": {"head": HEAD_DIM, "axis": 1},
}


def test_a_qwen35_file_has_its_value_heads_in_the_order_of_llama_cpp(tmp_path: Path):
    model = _make(_qwen35)
    directory = save_directory(model, tmp_path / "directory")
    metadata = {key: value for key, value in directory.metadata.items() if key != "memra.delta_value_heads"}
    values = {}
    for name, tensor in directory.tensors.items():
        part = name.split(".", 2)[-1]
        array = tensor.dequantise()
        values[name] = _tiled(array, **_TILED_PARTS[part]) if part in _TILED_PARTS else array
    file = write_gguf(_with_tensors(directory, metadata, values), tmp_path / "tiled.gguf")
    token_ids = random_tokens(128)
    wanted = transformers_logits(model, token_ids)
    with torch_executor(file) as executor:
        logits = prefill(executor, sequence(executor, token_ids), len(token_ids))
    assert np.abs(logits - wanted).max() < BOUNDS.oracle
    with native_executor(file) as executor:
        got = prefill(executor, sequence(executor, token_ids), len(token_ids))
    assert np.abs(got - logits).max() < BOUNDS.native * np.abs(logits).max()


def test_a_shared_experts_gate_may_be_stored_as_a_vector(tmp_path: Path):
    directory = save_directory(_make(_qwen35moe), tmp_path / "directory")
    token_ids = random_tokens(128, 40)
    values = {
        name: tensor.dequantise().reshape(-1 if "gate_inp_shexp" in name else tensor.shape)
        for name, tensor in directory.tensors.items()
    }
    file = write_gguf(_with_tensors(directory, dict(directory.metadata), values), tmp_path / "vectors.gguf")
    assert program_of(file).weights["blk.0.ffn_gate_inp_shexp.weight"] == (64,)
    for make_executor in (torch_executor, native_executor):
        with make_executor(directory) as executor:
            wanted = prefill(executor, sequence(executor, token_ids), len(token_ids))
        with make_executor(file) as executor:
            np.testing.assert_array_equal(prefill(executor, sequence(executor, token_ids), len(token_ids)), wanted)


@pytest.mark.parametrize("name", ["qwen3next", "qwen35"])
def test_layers_that_predict_further_tokens_are_left_out(name: str, tmp_path: Path):
    checkpoint = save_directory(_make(MODELS[name]), tmp_path)
    metadata, shapes = dict(checkpoint.metadata), _shapes(checkpoint)
    plain = build_program(name, metadata, shapes)
    metadata |= {
        f"{name}.block_count": 5,
        f"{name}.nextn_predict_layers": 1,
        f"{name}.attention.recurrent_layers": (True, True, True, False, False),
    }
    extra = {"blk.4.nextn.eh_proj.weight": (64, 128), "blk.4.attn_norm.weight": (64,)}
    program = build_program(name, metadata, shapes | extra)
    assert program.operators == plain.operators
    assert program.unused is not None
    assert set(program.unused) == set(extra)
    assert all("speculation" in reason for reason in program.unused.values())
    with pytest.raises(CorruptFileError, match="nextn_predict_layers leaves 0"):
        build_program(name, metadata | {f"{name}.nextn_predict_layers": 5}, shapes | extra)


def test_directories_leave_out_what_predicts_further_tokens(tmp_path: Path):
    model = _make(_qwen35)
    model.mtp = torch.nn.Linear(4, 4)
    model.save_pretrained(tmp_path)
    assert not any("mtp" in name for name in open_directory(tmp_path).tensors)


@pytest.mark.parametrize(
    ("outer", "nested", "is_tied"), [(None, True, True), (True, False, True), (False, True, False)]
)
def test_the_outer_configuration_says_whether_the_head_is_tied_and_else_the_nested_one(
    tmp_path: Path, *, outer: bool | None, nested: bool, is_tied: bool
):
    _make(_qwen35_with_tower).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config.pop("tie_word_embeddings", None)
    config["text_config"]["tie_word_embeddings"] = nested
    if outer is not None:
        config["tie_word_embeddings"] = outer
    path.write_text(json.dumps(config))
    if is_tied:
        assert "output.weight" not in open_directory(tmp_path).tensors
    else:
        with pytest.raises(CorruptFileError, match=r"holds no 'lm_head\.weight'"):
            open_directory(tmp_path)


def test_kinds_of_layers_follow_from_the_interval_where_a_file_has_no_flags(tmp_path: Path):
    checkpoint = save_directory(_make(_qwen35), tmp_path)
    metadata, shapes = dict(checkpoint.metadata), _shapes(checkpoint)
    program = build_program("qwen35", metadata, shapes)
    assert metadata.pop("qwen35.attention.recurrent_layers") == (True, True, True, False)
    assert build_program("qwen35", metadata, shapes) == program
    with pytest.raises(CorruptFileError, match=r"blk\.1\.attn_q\.weight"):
        build_program("qwen35", metadata | {"qwen35.full_attention_interval": 2}, shapes)


def test_what_would_be_another_model_is_refused_by_name(tmp_path: Path):
    checkpoint = save_directory(_make(_qwen3next), tmp_path)
    metadata, shapes = dict(checkpoint.metadata), _shapes(checkpoint)
    with pytest.raises(UnsupportedModelError, match=r"qwen3next\.rope\.scaling\.type is 'longrope'"):
        build_program("qwen3next", metadata | {"qwen3next.rope.scaling.type": "longrope"}, shapes)
    with pytest.raises(UnsupportedModelError, match=r"the tensor blk\.0\.ssm_d"):
        build_program("qwen3next", metadata, shapes | {"blk.0.ssm_d": (6,)})
    with pytest.raises(UnsupportedModelError, match="fetch a newer conversion"):
        build_program("qwen3next", metadata, shapes | {"blk.0.ssm_in.weight": (256, 64)})
    with pytest.raises(CorruptFileError, match="do not divide each other"):
        build_program("qwen3next", metadata | {"qwen3next.ssm.time_step_rank": 5}, shapes)


def test_an_unknown_order_of_value_heads_is_refused(tmp_path: Path):
    checkpoint = save_directory(_make(_qwen35), tmp_path)
    with pytest.raises(CorruptFileError, match=r"memra\.delta_value_heads is 'spiral'"):
        build_program("qwen35", dict(checkpoint.metadata) | {"memra.delta_value_heads": "spiral"}, _shapes(checkpoint))
