"""Keys of GGUF files put right by the user."""

import logging
from pathlib import Path

import pytest

from memra.cli import main
from memra.errors import ConfigurationError, SourceError
from memra.loading.gguf_file import open_gguf
from memra.loading.metadata_overrides import MetadataOverride, parse_override
from memra.loading.model_path import open_checkpoint
from memra.loading.source_grammar import (
    HubSource,
    PathSource,
    parse_model,
    parse_model_argument,
    parse_models,
)
from memra.served_models import plan_models
from memra.settings import ModelSettings
from tests.loading.gguf_bytes import GgufBytes
from tests.loading.model_directory import write_directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(GgufBytes().build())
    return path


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("meta.llama.context_length=int:4096", "llama.context_length", 4096),
        ("meta.a.b=int:-1", "a.b", -1),
        ("meta.a=int:18446744073709551615", "a", (1 << 64) - 1),
        ("meta.llama.rope.freq_base=float:1e6", "llama.rope.freq_base", 1e6),
        ("meta.tokenizer.ggml.add_bos_token=bool:false", "tokenizer.ggml.add_bos_token", False),
        ("meta.tokenizer.ggml.pre=str:llama-bpe", "tokenizer.ggml.pre", "llama-bpe"),
        ("meta.general.name=str:a=b: c", "general.name", "a=b: c"),
        ("meta.general.name=str:", "general.name", ""),
    ],
)
def test_a_value_of_every_type_is_read(text, key, value):
    override = parse_override(text)
    assert override == MetadataOverride(key, value)
    assert type(override.value) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("meta.a=4096", "TYPE:VALUE"),
        ("meta.a", "TYPE:VALUE"),
        ("meta.=int:1", "TYPE:VALUE"),
        ("meta.a b=int:1", "TYPE:VALUE"),
        ("other.a=int:1", "TYPE:VALUE"),
        ("meta.a=uint32:1", "no type 'uint32'"),
        ("meta.a=int:1.5", "whole number"),
        ("meta.a=int:", "whole number"),
        ("meta.a=int:1_000", "whole number"),
        ("meta.a=int:18446744073709551616", "whole number"),
        ("meta.a=float:nan", "finite"),
        ("meta.a=float:x", "finite"),
        ("meta.a=bool:1", "true or false"),
        ("meta.general.alignment=int:64", "laid out"),
        ("meta.split.count=int:1", "laid out"),
    ],
)
def test_a_malformed_override_is_refused_with_the_remedy(text, reason):
    with pytest.raises(SourceError, match=reason) as caught:
        parse_override(text)
    assert repr(text) in caught.value.message


def test_overrides_follow_their_source_in_arguments_and_lists():
    entry = parse_model_argument("a=/x,1.gguf , meta.k=int:1,meta.l=str:two")
    assert entry.source == PathSource("/x,1.gguf", Path("/x,1.gguf"))
    assert entry.overrides == (MetadataOverride("k", 1), MetadataOverride("l", "two"))
    entries = parse_models("a=/x.gguf,meta.k=int:1, b=hf:o/r:q4 ,meta.k=bool:true,,c=pypi:p==1/a,b,meta.k=int:3,d=/d")
    assert [(entry.name, entry.overrides) for entry in entries] == [
        ("a", (MetadataOverride("k", 1),)),
        ("b", (MetadataOverride("k", value=True),)),
        ("c", (MetadataOverride("k", 3),)),
        ("d", ()),
    ]
    assert entries[1].source == HubSource("hf:o/r:q4", "o", "r", "q4")
    assert parse_model("/x.gguf") == (PathSource("/x.gguf", Path("/x.gguf")), ())


def test_the_first_model_of_a_list_may_have_a_name_like_an_override():
    assert parse_models("meta.llama=/x.gguf")[0].name == "meta.llama"
    with pytest.raises(SourceError, match="TYPE:VALUE"):
        parse_models("a=/y.gguf,meta.llama=/x.gguf")


def test_a_key_twice_and_something_else_behind_an_override_are_refused():
    with pytest.raises(SourceError, match=r"meta\.k appears twice"):
        parse_model_argument("a=/x,meta.k=int:1,meta.k=int:2")
    with pytest.raises(SourceError, match="TYPE:VALUE"):
        parse_model_argument("a=/x,meta.k=str:one,two")


def test_a_table_of_the_settings_takes_overrides_as_well():
    (entry,) = plan_models(ModelSettings(table={"a": "/x.gguf,meta.k=int:1"}))
    assert entry.overrides == (MetadataOverride("k", 1),)


def test_an_override_takes_the_place_of_the_key_and_is_said_in_the_log(path, caplog):
    overrides = (
        MetadataOverride("llama.context_length", 64),
        MetadataOverride("tokenizer.ggml.add_bos_token", value=False),
        MetadataOverride("tokenizer.chat_template", "x" * 500),
    )
    with caplog.at_level(logging.INFO):
        checkpoint = open_gguf(path, overrides=overrides)
    assert checkpoint.metadata["llama.context_length"] == 64
    assert checkpoint.vocabulary.add_bos is False
    assert checkpoint.vocabulary.chat_template == "x" * 500
    assert "llama.context_length is set to 64, instead of 128" in caplog.text
    assert "tokenizer.chat_template is set to 'xxx" in caplog.text
    assert "which the file does not have" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 300
    assert open_gguf(path).metadata["llama.context_length"] == 128


def test_a_whole_number_may_stand_for_a_number(path):
    path.write_bytes(GgufBytes(keys={**GgufBytes().keys, "llama.rope.freq_base": b"\x06\0\0\0\0\0\x80\x3f"}).build())
    found = open_gguf(path, overrides=(MetadataOverride("llama.rope.freq_base", 500),)).metadata["llama.rope.freq_base"]
    assert (found, type(found)) == (500.0, float)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (MetadataOverride("llama.context_length", "64"), "of type int, not of type str"),
        (MetadataOverride("llama.context_length", value=True), "of type int, not of type bool"),
        (MetadataOverride("general.architecture", 7), "of type str, not of type int"),
        (MetadataOverride("tokenizer.ggml.tokens", "a"), "an array"),
    ],
)
def test_an_override_of_another_type_is_refused(path, override, reason):
    with pytest.raises(ConfigurationError, match=reason) as caught:
        open_gguf(path, overrides=(override,))
    assert override.key in caught.value.message


def test_a_directory_has_no_keys_to_override(tmp_path):
    directory = write_directory(tmp_path, "llama")
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        open_checkpoint(directory, overrides=(MetadataOverride("a", 1),))


def test_a_bench_refuses_overrides_instead_of_measuring_without_them(path, capsys):
    assert main(["bench", "-m", f"a={path},meta.llama.context_length=int:64"]) == 2
    assert "leave out meta.llama.context_length" in capsys.readouterr().err
