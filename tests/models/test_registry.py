"""Programs built from metadata: their shape, and what is refused and how."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.layers.operators import Activation, Attention, Embed, GatedProduct, Head, Linear, RmsNorm, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.registry import build_program
from tests.models.tiny_models import (
    FAMILIES,
    VOCAB_SIZE,
    ArrayTensor,
    TinyModel,
    make_gemma3,
    make_llama,
    make_qwen2,
)


def _all(program: Program, kind: type) -> list:
    return [operator for operator in program if isinstance(operator, kind)]


def _without(model: TinyModel, name: str) -> TinyModel:
    del model.tensors[name]
    return model


def _with_tensor(model: TinyModel, name: str, *shape: int) -> TinyModel:
    model.tensors[name] = ArrayTensor(name, np.ones(shape, dtype=np.float32))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_the_file_is_named_with_its_shape(family: str):
    model = FAMILIES[family]()
    program = model.build_program()
    assert dict(program.weights) == dict(model.tensor_shapes)
    assert program.architecture == family
    assert (program.vocab_size, program.context_tokens) == (VOCAB_SIZE, 2048)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_buffer_is_written_before_it_is_read(family: str):
    program = FAMILIES[family]().build_program()
    written: set[str] = set()
    for operator in program:
        reads = [getattr(operator, name) for name in ("x", "y", "q", "k", "v", "gate", "up") if hasattr(operator, name)]
        assert set(reads) <= written
        if hasattr(operator, "out"):
            written.add(operator.out)
    assert written == set(program.buffers)
    assert isinstance(program.operators[-1], Head)


def test_llama_rotates_neighbours_and_ties_its_head():
    program = make_llama().build_program()
    assert {rope.style for rope in _all(program, Rope)} == {RopeStyle.INTERLEAVED}
    assert program.operators[-1] == Head("normed", "token_embd.weight")
    assert {product.activation for product in _all(program, GatedProduct)} == {Activation.SILU}
    assert all(linear.bias is None for linear in _all(program, Linear))
    assert {attention.scale for attention in _all(program, Attention)} == {1 / math.sqrt(8)}


def test_llama_rotates_halves_where_the_checkpoint_says_so():
    model = make_llama()
    model.metadata["memra.rope_style"] = "halves"
    assert {rope.style for rope in _all(model.build_program(), Rope)} == {RopeStyle.HALVES}


def test_llama_refuses_an_unknown_rope_style():
    model = make_llama()
    model.metadata["memra.rope_style"] = "spiral"
    with pytest.raises(CorruptFileError, match=r"memra\.rope_style is 'spiral'"):
        model.build_program()


def test_llama_takes_frequency_factors_and_biases_where_the_file_has_them():
    model = make_llama(frequency_factors=True)
    _with_tensor(model, "blk.1.attn_output.bias", 48)
    program = model.build_program()
    assert {rope.frequency_factors for rope in _all(program, Rope)} == {"rope_freqs.weight"}
    assert [linear.bias for linear in _all(program, Linear) if linear.bias] == ["blk.1.attn_output.bias"]


def test_linear_rope_scaling_divides_positions():
    program = make_qwen2(**{"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}).build_program()
    assert {rope.position_scale for rope in _all(program, Rope)} == {0.25}


def test_rope_scaling_of_type_none_ignores_the_factor():
    program = make_llama(**{"rope.scaling.type": "none", "rope.scaling.factor": 4.0}).build_program()
    assert {rope.position_scale for rope in _all(program, Rope)} == {1.0}


def test_qwen2_adds_biases_to_q_k_and_v_only():
    program = make_qwen2().build_program()
    assert Counter(linear.bias is not None for linear in _all(program, Linear)) == {True: 6, False: 8}
    assert {rope.style for rope in _all(program, Rope)} == {RopeStyle.HALVES}


def test_qwen2_needs_its_biases():
    with pytest.raises(CorruptFileError, match=r"lacks the tensor blk\.0\.attn_k\.bias"):
        _without(make_qwen2(), "blk.0.attn_k.bias").build_program()


def test_an_output_weight_unties_the_head():
    assert make_qwen2(tied=False).build_program().operators[-1] == Head("normed", "output.weight")


def test_gemma3_sees_a_window_in_five_layers_of_six():
    program = make_gemma3().build_program()
    assert [layer.window for layer in program.kv_layers] == [20] * 5 + [None, 20]
    bases = [rope.base for rope in _all(program, Rope)]
    assert bases == [10000.0] * 10 + [100000.0] * 2 + [10000.0] * 2


def test_gemma3_scales_only_the_global_rope():
    program = make_gemma3(**{"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}).build_program()
    scales = [rope.position_scale for rope in _all(program, Rope)]
    assert scales == [1.0] * 10 + [0.125] * 2 + [1.0] * 2


@pytest.mark.parametrize("pattern", [3, [True, True, False] * 3, (1, 1, 0, 1, 1, 0, 1)])
def test_gemma3_reads_a_pattern_as_a_period_or_as_flags(pattern: object):
    program = make_gemma3(**{"attention.sliding_window_pattern": pattern}).build_program()
    assert [layer.window for layer in program.kv_layers] == [20, 20, None, 20, 20, None, 20]


def test_gemma3_refuses_a_pattern_that_ends_early():
    with pytest.raises(CorruptFileError, match="has 2 entries for 7 layers"):
        make_gemma3(**{"attention.sliding_window_pattern": [True, False]}).build_program()


def test_gemma3_without_a_window_is_global_everywhere():
    program = make_gemma3(**{"attention.sliding_window": 0}).build_program()
    assert {layer.window for layer in program.kv_layers} == {None}
    assert {rope.base for rope in _all(program, Rope)} == {100000.0}


def test_gemma3_norms_heads_and_both_ends_of_each_branch():
    program = make_gemma3().build_program()
    norms = _all(program, RmsNorm)
    assert len(norms) == 7 * 6 + 1
    assert Counter(norm.group_width for norm in norms) == {16: 14, 40: 29}
    assert _all(program, Embed)[0].scale == math.sqrt(40)
    assert {product.activation for product in _all(program, GatedProduct)} == {Activation.GELU_TANH}


def test_gemma3_takes_its_scale_and_the_cap_on_logits_from_the_file():
    extra = {"attention.scale": 0.125, "final_logit_softcapping": 30.0}
    program = make_gemma3(**extra).build_program()
    assert {(op.scale, op.softcap) for op in _all(program, Attention)} == {(0.125, None)}
    assert program.operators[-1] == Head("normed", "token_embd.weight", softcap=30.0)


def test_an_unknown_architecture_is_refused_with_the_known_ones():
    with pytest.raises(UnsupportedModelError, match=r"'mamba'; it knows .*gemma3, .*llama"):
        build_program("mamba", {}, {})


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("llama", "rope.scaling.type", "dynamic"),
        ("qwen2", "rope.scaling.type", "dynamic"),
        ("gemma3", "rope.scaling.type", "longrope"),
        ("gemma3", "attn_logit_softcapping", 50.0),
        ("qwen2", "expert_count", 8),
        ("llama", "attention.causal", False),
        ("llama", "attention.sliding_window_pattern", 4),
        ("qwen2", "attention.sliding_window", 4096),
        ("qwen2", "pooling_type", 3),
        ("llama", "residual_scale", 0.22),
        ("llama", "attention.value_length", 16),
        ("llama", "attention.head_count_kv", [2, 1]),
    ],
)
def test_what_a_family_does_not_run_is_refused_by_name(family: str, key: str, value: object):
    with pytest.raises(UnsupportedModelError, match=f"{family}.{key}"):
        FAMILIES[family](**{key: value}).build_program()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", "2"),
        ("block_count", True),
        ("embedding_length", 48.0),
        ("attention.layer_norm_rms_epsilon", "tiny"),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("rope.freq_base", -1.0),
        ("rope.dimension_count", 7),
        ("rope.dimension_count", 10),
        ("attention.head_count_kv", 4),
        ("rope.scaling.factor", "two"),
    ],
)
def test_a_mistyped_key_is_named(key: str, value: object):
    named = "attention.head_count" if key == "attention.head_count_kv" else key
    with pytest.raises(CorruptFileError, match=f"llama.{named}"):
        make_llama(**{key: value}).build_program()


@pytest.mark.parametrize(
    "key", ["block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length"]
)
def test_a_missing_key_is_named(key: str):
    model = make_llama()
    del model.metadata[f"llama.{key}"]
    with pytest.raises(CorruptFileError, match=rf"lacks the metadata key llama\.{key}"):
        model.build_program()


def test_linear_scaling_needs_its_factor():
    with pytest.raises(CorruptFileError, match=r"llama\.rope\.scaling\.factor"):
        make_llama(**{"rope.scaling.type": "linear"}).build_program()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_tensor_is_named(family: str):
    for name in FAMILIES[family]().tensors:
        with pytest.raises(CorruptFileError, match=f"lacks the tensor {name}"):
            _without(FAMILIES[family](), name).build_program()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_of_another_shape_is_named(family: str):
    for name, tensor in FAMILIES[family]().tensors.items():
        if name == "token_embd.weight":
            continue
        model = FAMILIES[family]()
        model.tensors[name] = replace(tensor, values=tensor.values[:-1])
        with pytest.raises(CorruptFileError, match=f"{name} has the shape"):
            model.build_program()


@pytest.mark.parametrize("shape", [(VOCAB_SIZE, 47), (0, 48), ()])
def test_an_embedding_of_another_shape_is_named(shape: tuple[int, ...]):
    model = _with_tensor(make_llama(), "token_embd.weight", *shape)
    with pytest.raises(CorruptFileError, match=r"token_embd\.weight has the shape"):
        model.build_program()


def test_a_tensor_that_nobody_reads_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_gate_inp\.weight"):
        _with_tensor(make_llama(), "blk.0.ffn_gate_inp.weight", 8, 48).build_program()
