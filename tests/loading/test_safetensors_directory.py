import json
import math

import numpy as np
import pytest

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.model_path import open_checkpoint
from memra.loading.safetensors_directory import open_directory
from memra.messages.vocabulary import TokenizerKind, TokenType
from memra.models.registry import build_program
from tests.loading.gguf_bytes import GgufBytes
from tests.loading.model_directory import (
    HEAD_DIM,
    LAYERS,
    TOKENIZER,
    VOCAB,
    safetensors_bytes,
    stored,
    tensors,
    write_directory,
    write_json,
)

FAMILIES = ("llama", "qwen2", "gemma3")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_builds_the_same_program_as_a_gguf_file(tmp_path, family):
    checkpoint = open_checkpoint(write_directory(tmp_path, family))
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
    assert program.vocab_size == VOCAB
    assert program.context_tokens == 64
    assert set(program.weights) == set(shapes)
    assert len(program.kv_layers) == LAYERS
    assert checkpoint.is_directory
    assert checkpoint.metadata["memra.rope_style"] == "halves"


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_matrices_keep_their_bytes_and_type(tmp_path, dtype):
    checkpoint = open_directory(write_directory(tmp_path, "llama", dtype=dtype))
    source = tensors("llama")["model.layers.1.self_attn.k_proj.weight"]
    found = checkpoint.tensors["blk.1.attn_k.weight"]
    assert (found.quant_type, found.shape) == (dtype, source.shape)
    assert found.data.tobytes() == stored(source, dtype)


def test_every_llama_tensor_gets_its_gguf_name(tmp_path):
    checkpoint = open_directory(write_directory(tmp_path, "llama"))
    source = tensors("llama")
    pairs = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
        "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
        "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "blk.0.attn_output.weight": "model.layers.0.self_attn.o_proj.weight",
        "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
        "blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
    }
    for ours, theirs in pairs.items():
        assert np.array_equal(checkpoint.tensors[ours].dequantise(), source[theirs])


def test_gemma_norms_come_out_as_one_plus_w_and_nothing_else_changes(tmp_path):
    checkpoint = open_directory(write_directory(tmp_path, "gemma3", dtype="BF16"))
    source = tensors("gemma3")
    norms = {
        "output_norm.weight": "model.norm.weight",
        "blk.1.attn_norm.weight": "model.layers.1.input_layernorm.weight",
        "blk.1.post_attention_norm.weight": "model.layers.1.post_attention_layernorm.weight",
        "blk.1.ffn_norm.weight": "model.layers.1.pre_feedforward_layernorm.weight",
        "blk.1.post_ffw_norm.weight": "model.layers.1.post_feedforward_layernorm.weight",
        "blk.1.attn_q_norm.weight": "model.layers.1.self_attn.q_norm.weight",
    }
    for ours, theirs in norms.items():
        truncated = (source[theirs].view(np.uint32) & 0xFFFF0000).view(np.float32)
        assert checkpoint.tensors[ours].quant_type == "F32"
        assert np.array_equal(checkpoint.tensors[ours].dequantise(), truncated + np.float32(1))
    assert checkpoint.tensors["blk.1.attn_q.weight"].quant_type == "BF16"


def test_gemma_metadata_tells_local_from_global_layers(tmp_path):
    types = ["sliding_attention", "full_attention"]
    metadata = open_directory(write_directory(tmp_path, "gemma3", layer_types=types)).metadata
    assert metadata["gemma3.attention.sliding_window"] == 8
    assert metadata["gemma3.attention.sliding_window_pattern"] == (True, False)
    assert metadata["gemma3.rope.freq_base"] == 1e6
    assert metadata["gemma3.rope.freq_base_swa"] == 10000.0
    assert metadata["gemma3.attention.scale"] == 16**-0.5


def test_old_and_new_spelling_of_the_rotation_agree(tmp_path):
    old = open_directory(write_directory(tmp_path / "old", "gemma3")).metadata
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    new_directory = write_directory(
        tmp_path / "new", "gemma3", rope_parameters=nested, rope_theta=None, rope_local_base_freq=None
    )
    new = open_directory(new_directory).metadata
    for key in ("gemma3.rope.freq_base", "gemma3.rope.freq_base_swa"):
        assert new[key] == old[key]
    assert (new["gemma3.rope.scaling.type"], new["gemma3.rope.scaling.factor"]) == ("linear", 8.0)
    assert "gemma3.rope.scaling.type" not in old


def test_llama_3_scaling_becomes_the_tensor_of_factors(tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    checkpoint = open_directory(write_directory(tmp_path, "llama", rope_scaling=scaling, rope_theta=10000.0))
    factors = checkpoint.tensors["rope_freqs.weight"].dequantise()
    assert factors.shape == (HEAD_DIM // 2,)
    for index, found in enumerate(factors):
        wavelength = 2 * math.pi * 10000.0 ** (2 * index / HEAD_DIM)
        if wavelength < 128 / 4:
            expected = 1.0
        elif wavelength > 128 / 1:
            expected = 8.0
        else:
            smooth = (128 / wavelength - 1) / (4 - 1)
            expected = 1 / ((1 - smooth) / 8 + smooth)
        assert found == pytest.approx(expected, rel=1e-6)
    assert {1.0, 8.0} == set(factors.tolist())


def test_tied_embeddings_leave_the_head_out(tmp_path):
    tied = open_directory(write_directory(tmp_path / "tied", "llama", tie_word_embeddings=True))
    assert "output.weight" not in tied.tensors
    default = write_directory(tmp_path / "default", "gemma3", tie_word_embeddings=None)
    config = json.loads((default / "config.json").read_text(encoding="utf-8"))
    del config["tie_word_embeddings"]
    write_json(default / "config.json", config)
    assert "output.weight" not in open_directory(default).tensors


def test_the_tokenizer_is_laid_out_by_id(tmp_path):
    path = write_directory(tmp_path, "llama")
    write_json(path / "generation_config.json", {"eos_token_id": [5, 6]})
    vocabulary = open_directory(path).vocabulary
    assert vocabulary.kind is TokenizerKind.TOKENIZER_JSON
    assert vocabulary.tokens[:8] == ("a", "b", "ab", "c", "<s>", "</s>", "<end_of_turn>", "<think>")
    assert len(vocabulary.tokens) == VOCAB
    assert vocabulary.token_types[3:9] == (
        TokenType.NORMAL,
        TokenType.CONTROL,
        TokenType.CONTROL,
        TokenType.CONTROL,
        TokenType.USER_DEFINED,
        TokenType.UNUSED,
    )
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.eot_id) == (4, 5, 6)
    assert vocabulary.add_bos is True
    assert vocabulary.chat_template == "{{ messages }}"
    assert json.loads(vocabulary.tokenizer_json or "") == TOKENIZER


def test_ids_in_config_json_serve_where_no_name_is_given(tmp_path):
    path = write_directory(tmp_path, "llama", bos_token_id=4, eos_token_id=[5], pad_token_id=99)
    (path / "tokenizer_config.json").unlink()
    vocabulary = open_directory(path).vocabulary
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.eot_id, vocabulary.padding_id) == (4, 5, None, None)
    assert vocabulary.chat_template is None


def test_a_template_in_its_own_file_wins_and_a_list_gives_its_default(tmp_path):
    path = write_directory(tmp_path, "llama")
    listed = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    write_json(path / "tokenizer_config.json", {"chat_template": listed})
    assert open_directory(path).vocabulary.chat_template == "plain"
    (path / "chat_template.jinja").write_text("own file", encoding="utf-8")
    assert open_directory(path).vocabulary.chat_template == "own file"


def test_shards_open_by_their_index(tmp_path):
    path = write_directory(tmp_path, "llama")
    whole = tensors("llama")
    (path / "model.safetensors").unlink()
    names = sorted(whole)
    places = {}
    for number, part in enumerate((names[:7], names[7:]), start=1):
        shard = f"model-{number:05d}-of-00002.safetensors"
        (path / shard).write_bytes(safetensors_bytes({name: whole[name] for name in part}))
        places.update(dict.fromkeys(part, shard))
    write_json(path / "model.safetensors.index.json", {"weight_map": places})
    checkpoint = open_directory(path)
    assert len(checkpoint.tensors) == len(whole)
    assert checkpoint.size_bytes == sum(file.stat().st_size for file in path.glob("*.safetensors"))
    places["model.norm.weight"] = next(name for name in places.values() if name != places["model.norm.weight"])
    write_json(path / "model.safetensors.index.json", {"weight_map": places})
    with pytest.raises(CorruptFileError, match=r"lacks the tensor 'model\.norm\.weight'"):
        _ = open_directory(path).vocabulary
    write_json(path / "model.safetensors.index.json", {"weight_map": {"model.norm.weight": "../model.safetensors"}})
    with pytest.raises(CorruptFileError, match="weight_map"):
        _ = open_directory(path).vocabulary


def test_a_directory_with_one_gguf_opens_it_and_with_several_asks(tmp_path):
    with pytest.raises(SourceError, match=r"neither config\.json nor a GGUF"):
        open_checkpoint(tmp_path)
    (tmp_path / "a.gguf").write_bytes(GgufBytes().build())
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.path == tmp_path / "a.gguf"
    assert not checkpoint.is_directory
    (tmp_path / "b.gguf").write_bytes(GgufBytes().build())
    with pytest.raises(SourceError, match=r"a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["FunnelModel"]}, "FunnelModel"),
        ({"architectures": [["x"]]}, "architecture"),
        ({"architectures": None, "model_type": "bert"}, "bert"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
        ({"hidden_act": "relu"}, "relu"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "dynamic"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, changes, named):
    path = write_directory(tmp_path, "llama", **changes)
    with pytest.raises(UnsupportedModelError, match=named):
        _ = open_directory(path).vocabulary


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "16"}, "hidden_size"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_theta": float("nan")}, "rope_theta"),
    ],
)
def test_a_wrong_value_in_config_json_is_named(tmp_path, changes, named):
    path = write_directory(tmp_path, "llama", **changes)
    with pytest.raises(CorruptFileError, match=named) as caught:
        _ = open_directory(path).vocabulary
    assert "config.json" in caught.value.message


def test_missing_files_are_named(tmp_path):
    for name in ("tokenizer.json", "model.safetensors"):
        path = write_directory(tmp_path, "llama")
        (path / name).unlink()
        with pytest.raises(SourceError, match=name):
            _ = open_directory(path).vocabulary


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_file_that_is_no_json_object_is_named(tmp_path, name, content):
    path = write_directory(tmp_path, "llama")
    (path / name).write_bytes(content)
    with pytest.raises(CorruptFileError, match=name):
        _ = open_directory(path).vocabulary


@pytest.mark.parametrize(
    ("tokenizer", "error"),
    [
        ({"model": {"vocab": {"a": "0"}}}, UnsupportedModelError),
        ({"model": {}}, UnsupportedModelError),
        ({}, UnsupportedModelError),
        ({"model": {"vocab": {}}}, CorruptFileError),
        ({"model": {"vocab": {"a": 1 << 60}}}, CorruptFileError),
        ({"model": {"vocab": {"a": -1}}}, CorruptFileError),
        ({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": "x"}]}, CorruptFileError),
        ({"model": {"vocab": {"a": 0}}, "added_tokens": {}}, None),
        ({"model": {"vocab": [["a", 0.0], ["b", -1.0]]}}, None),
    ],
)
def test_a_tokenizer_json_of_another_form_is_refused(tmp_path, tokenizer, error):
    path = write_directory(tmp_path, "llama")
    write_json(path / "tokenizer.json", tokenizer)
    if error is None:
        assert open_directory(path).vocabulary.tokens[0] == "a"
        return
    with pytest.raises(error, match=r"tokenizer\.json"):
        _ = open_directory(path).vocabulary


def test_an_unknown_tensor_is_refused_by_name(tmp_path):
    path = write_directory(tmp_path, "llama")
    extra = {**tensors("llama"), "model.layers.0.self_attn.q_proj.lora_A": np.zeros(4, dtype=np.float32)}
    (path / "model.safetensors").write_bytes(safetensors_bytes(extra))
    with pytest.raises(UnsupportedModelError, match="lora_A"):
        _ = open_directory(path).vocabulary


def test_stored_rope_frequencies_are_left_out(tmp_path):
    path = write_directory(tmp_path, "llama")
    extra = {**tensors("llama"), "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, dtype=np.float32)}
    (path / "model.safetensors").write_bytes(safetensors_bytes(extra))
    assert len(open_directory(path).tensors) == len(tensors("llama"))
