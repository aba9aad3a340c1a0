"""What lies beside the weights: templates, ids that end an answer, advice for sampling, shards, and other layouts."""

import json
from pathlib import Path

import pytest

from memra.chat.token_roles import assign_roles
from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.hub import choose_files
from memra.loading.safetensors_directory import open_directory
from memra.loading.source_grammar import HubSource
from tests.loading.model_directory import safetensors_bytes, tensors, write_directory, write_json

LISTED = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}, {"name": 3}, "x"]


def test_named_templates_are_kept_beside_the_default(tmp_path):
    path = write_directory(tmp_path, "llama")
    write_json(path / "tokenizer_config.json", {"chat_template": LISTED})
    vocabulary = open_directory(path).vocabulary
    assert (vocabulary.chat_template, vocabulary.named_templates) == ("plain", {"tool_use": "tools"})


def test_template_files_win_over_the_configuration(tmp_path):
    path = write_directory(tmp_path, "llama")
    write_json(path / "tokenizer_config.json", {"chat_template": LISTED})
    (path / "chat_template.jinja").write_text("own", encoding="utf-8")
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("own tools", encoding="utf-8")
    (path / "additional_chat_templates" / "rag.jinja").write_text("own rag", encoding="utf-8")
    vocabulary = open_directory(path).vocabulary
    assert vocabulary.chat_template == "own"
    assert vocabulary.named_templates == {"tool_use": "own tools", "rag": "own rag"}


def test_a_template_in_json_and_a_single_one_of_another_name_are_the_default(tmp_path):
    path = write_directory(tmp_path, "llama")
    write_json(path / "tokenizer_config.json", {"chat_template": LISTED[:1]})
    assert open_directory(path).vocabulary.chat_template == "tools"
    write_json(path / "tokenizer_config.json", {"chat_template": 5})
    assert open_directory(path).vocabulary.chat_template is None
    write_json(path / "chat_template.json", {"chat_template": "from json"})
    assert open_directory(path).vocabulary.chat_template == "from json"


def test_every_id_that_ends_an_answer_is_kept(tmp_path):
    path = write_directory(tmp_path, "llama", eos_token_id=[5, 3])
    write_json(path / "generation_config.json", {"eos_token_id": [6, 5, 7, 99]})
    vocabulary = open_directory(path).vocabulary
    assert (vocabulary.eos_id, vocabulary.eot_id, vocabulary.end_ids) == (5, 6, (6, 5, 7, 3))
    assert assign_roles(vocabulary, eos_id=vocabulary.eos_id).eos_ids == {3, 5, 6, 7}


def test_advice_for_sampling_becomes_metadata(tmp_path):
    path = write_directory(tmp_path, "llama")
    assert not any(key.startswith("general.sampling") for key in open_directory(path).metadata)
    advice = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "repetition_penalty": 1.05, "do_sample": True}
    write_json(path / "generation_config.json", advice)
    found = open_directory(path).metadata
    assert {key: value for key, value in found.items() if key.startswith("general.sampling")} == {
        "general.sampling.temp": 0.6,
        "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.0,
        "general.sampling.penalty_repeat": 1.05,
        "general.sampling.top_k": 20,
    }


@pytest.mark.parametrize(
    "values", [{"temperature": "hot"}, {"top_p": True}, {"top_k": 0.5}, {"top_k": -1}, {"temperature": float("nan")}]
)
def test_advice_that_is_no_number_is_named(tmp_path, values):
    path = write_directory(tmp_path, "llama")
    write_json(path / "generation_config.json", values)
    with pytest.raises(CorruptFileError, match=r"generation_config\.json.*" + next(iter(values))):
        open_directory(path)


def _sharded(path: Path, num_shards: int) -> Path:
    write_directory(path, "qwen2", dtype="BF16")
    (path / "model.safetensors").unlink()
    whole, places = tensors("qwen2"), {}
    for number in range(num_shards):
        shard = f"model-{number + 1:05d}-of-{num_shards:05d}.safetensors"
        part = sorted(whole)[number::num_shards]
        (path / shard).write_bytes(safetensors_bytes({name: whole[name] for name in part}, dtype="BF16"))
        places.update(dict.fromkeys(part, shard))
    write_json(path / "model.safetensors.index.json", {"weight_map": places})
    return path


@pytest.mark.parametrize("num_shards", [2, 5])
def test_a_sharded_model_is_the_single_one_to_the_bit(tmp_path, num_shards):
    single = open_directory(write_directory(tmp_path / "single", "qwen2", dtype="BF16"))
    sharded = open_directory(_sharded(tmp_path / "sharded", num_shards))
    assert sharded.metadata == single.metadata
    assert sharded.tensors.keys() == single.tensors.keys()
    for name, tensor in single.tensors.items():
        found = sharded.tensors[name]
        assert (found.quant_type, found.shape) == (tensor.quant_type, tensor.shape)
        assert found.data.tobytes() == tensor.data.tobytes()


def test_a_missing_shard_is_named(tmp_path):
    path = _sharded(tmp_path, 3)
    (path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(SourceError, match=r"model-00002-of-00003\.safetensors, which is not there"):
        open_directory(path)


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "", ".", 3, None])
def test_an_index_that_leaves_the_directory_is_refused(tmp_path, place):
    path = _sharded(tmp_path, 2)
    write_json(path / "model.safetensors.index.json", {"weight_map": {"model.norm.weight": place}})
    with pytest.raises(CorruptFileError, match="weight_map"):
        open_directory(path)


def test_a_head_that_is_neither_stored_nor_tied_is_refused(tmp_path):
    path = write_directory(tmp_path, "llama")
    headless = {name: values for name, values in tensors("llama").items() if name != "lm_head.weight"}
    (path / "model.safetensors").write_bytes(safetensors_bytes(headless))
    with pytest.raises(CorruptFileError, match=r"lm_head\.weight"):
        open_directory(path)


@pytest.mark.parametrize("keeps_config", [True, False])
@pytest.mark.parametrize(
    ("name", "named"),
    [("params.json", "Mistral"), ("consolidated.safetensors", "Mistral"), ("pytorch_model.bin", "pytorch_model")],
)
def test_the_layouts_of_other_tools_are_refused_with_a_remedy(tmp_path, name, named, keeps_config):
    path = write_directory(tmp_path, "llama")
    (path / "model.safetensors").unlink()
    if not keeps_config:
        (path / "config.json").unlink()
    (path / name).write_bytes(b"{}")
    with pytest.raises(UnsupportedModelError, match=named) as caught:
        open_directory(path)
    assert "fetch" in caught.value.message


def test_the_hub_is_asked_for_whatever_a_directory_needs():
    source = HubSource("hf:a/b", "a", "b", None)
    names = ["config.json", "tokenizer.model", "added_tokens.json", "additional_chat_templates/tool_use.jinja"]
    assert choose_files([*names, "README.md", "model.safetensors"], source) == (*names, "model.safetensors")
    both = choose_files(["config.json", "tokenizer.json", "tokenizer.model", "model.safetensors"], source)
    assert both == ("config.json", "tokenizer.json", "model.safetensors")


def test_another_reading_of_the_same_weights_is_another_identity(tmp_path):
    path = write_directory(tmp_path, "llama")
    plain = json.loads((path / "config.json").read_text(encoding="utf-8"))
    found = []
    for checkpoint_format in ("gptq", "gptq_v2"):
        section = {"quant_method": "gptq", "bits": 4, "checkpoint_format": checkpoint_format}
        write_json(path / "config.json", {**plain, "quantization_config": section})
        found += [open_directory(path).identity, open_directory(path).identity]
    assert found[0] == found[1] != found[2] == found[3]
