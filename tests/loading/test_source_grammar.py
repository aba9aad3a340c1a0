import logging
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memra.errors import SourceError
from memra.loading.known_models import DEFAULT_MODEL_NAME, DEFAULT_MODEL_SOURCE
from memra.loading.source_grammar import (
    HubSource,
    ModelEntry,
    PackageMember,
    PackageSource,
    PathSource,
    parse_model_argument,
    parse_models,
    parse_source,
)
from tests import assets

HEX = "ab" * 32


def test_entries_of_every_kind_are_read_in_order():
    entries = parse_models(
        " main = /models/a.gguf , judge=models/dir,, org/coder = hf:Org/Repo.GGUF : q4_k ,small=hf:o/r,"
        f"joined=pypi:p-1==1.0/p/x.part0, p-2==1.0/p/x.part1 , y.part2#sha256={HEX},last=~/b.gguf#sha256={HEX.upper()},"
    )
    assert {entry.name: entry.source for entry in entries} == {
        "main": PathSource("/models/a.gguf", Path("/models/a.gguf")),
        "judge": PathSource("models/dir", Path("models/dir")),
        "org/coder": HubSource("hf:Org/Repo.GGUF : q4_k", "Org", "Repo.GGUF", "q4_k"),
        "small": HubSource("hf:o/r", "o", "r"),
        "joined": PackageSource(
            f"pypi:p-1==1.0/p/x.part0,p-2==1.0/p/x.part1,y.part2#sha256={HEX}",
            (
                PackageMember("p-1", "1.0", "p/x.part0"),
                PackageMember("p-2", "1.0", "p/x.part1"),
                PackageMember("p-2", "1.0", "y.part2"),
            ),
            HEX,
        ),
        "last": PathSource(f"~/b.gguf#sha256={HEX.upper()}", Path("~/b.gguf"), HEX),
    }
    assert [entry.name for entry in entries] == ["main", "judge", "org/coder", "small", "joined", "last"]


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_nothing_usable_is_no_error(text):
    assert parse_models(text) == ()


def test_an_entry_without_an_equals_sign_is_skipped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        entries = parse_models("lonely, a=/x.gguf, after")
    assert [entry.name for entry in entries] == ["a"]
    assert "'lonely'" in caplog.text
    assert "'after'" in caplog.text


def test_a_piece_after_a_package_entry_begins_a_new_one_when_it_has_its_own_equals_sign():
    first, second = parse_models("a=pypi:p==1/x,b=pypi:q==2/y#sha256=" + HEX)
    assert first.source == PackageSource("pypi:p==1/x", (PackageMember("p", "1", "x"),))
    assert second.name == "b"
    assert second.source.sha256 == HEX


def test_a_folder_of_a_package_is_a_source():
    source = parse_source(assets.LLAMA_CPP_MODELS_SOURCE)
    assert source.members == (PackageMember("llama-cpp-python", "0.3.36", "vendor/llama.cpp/models/"),)


def test_the_known_sources_parse():
    entry = parse_model_argument(f"{DEFAULT_MODEL_NAME}={DEFAULT_MODEL_SOURCE}")
    assert entry.name == DEFAULT_MODEL_NAME
    assert entry.source.sha256 is not None
    assert len(parse_source(assets.QWEN_SOURCE).members) == 6
    assert len(parse_source(assets.GEMMA_SOURCE).members) == 4


BAD = {
    "=x": "NAME=SOURCE",
    "a=": "NAME=SOURCE",
    "a= ": "NAME=SOURCE",
    "a=#sha256=" + HEX[:-1]: "SHA-256",
    "a=m.gguf#sha256=": "SHA-256",
    "a=m.gguf#sha256=" + "g" * 64: "SHA-256",
    "a=m.gguf+d.gguf": "draft models are not supported yet",
    "a=hf:o/r+hf:o/d": "draft models are not supported yet",
    "a=pypi:p==1/x+y": "draft models are not supported yet",
    "a=hf:": "hub repository",
    "a=hf:owner": "hub repository",
    "a=hf:o/r/x": "hub repository",
    "a=hf:../r": "hub repository",
    "a=hf:o/r:": "hub repository",
    "a=hf:o/r#sha256=" + HEX: "leave it out",
    "a=pypi:": "names no version",
    "a=pypi:p/x": "names no version",
    "a=pypi:p==/x": "DISTRIBUTION==VERSION",
    "a=pypi:==1/x": "DISTRIBUTION==VERSION",
    "a=pypi:-r==1/x": "DISTRIBUTION==VERSION",
    "a=pypi:p q==1/x": "DISTRIBUTION==VERSION",
    "a=pypi:p==1;x/x": "DISTRIBUTION==VERSION",
    "a=pypi:p==1": "no path inside",
    "a=pypi:p==1/": "no path inside",
    "a=pypi:p==1//etc/passwd": "no path inside",
    "a=pypi:p==1/../x": "no path inside",
    "a=pypi:p==1/d/,x": "stands alone",
    "a=pypi:p==1/d/#sha256=" + HEX: "stands alone",
    "a=x,a=y": "appears twice",
}


@pytest.mark.parametrize("text", BAD)
def test_a_malformed_entry_is_named_with_what_is_wrong(text):
    with pytest.raises(SourceError) as caught:
        parse_models(text)
    message = caught.value.message
    assert BAD[text] in message
    assert text.rpartition("=x,")[2].partition("=")[2].strip() in message
    assert "\n" not in message


def test_a_local_version_is_no_draft():
    assert parse_source("pypi:p==1.0+cu1/x").members == (PackageMember("p", "1.0+cu1", "x"),)


def test_a_single_argument_is_read_whole():
    assert parse_model_argument("a=/odd, path.gguf").source == PathSource("/odd, path.gguf", Path("/odd, path.gguf"))
    with pytest.raises(SourceError, match="NAME=SOURCE"):
        parse_model_argument("a")
    with pytest.raises(SourceError, match="comma"):
        parse_model_argument("a,b=/x")
    with pytest.raises(SourceError, match="is empty"):
        parse_source("  ")


names = st.text(string.ascii_letters + string.digits + "/._-:", min_size=1, max_size=12).map(str.strip)
words = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8).map(lambda word: f"w{word}w")
hashes = st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def sources(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["path", "hub", "package", "joined"]))
    if kind == "hub":
        part = draw(st.none() | words)
        return f"hf:{draw(words)}/{draw(words)}" + (f":{part}" if part else "")
    sha256 = draw(hashes)
    suffix = f"#sha256={sha256}" if sha256 else ""
    if kind == "path":
        return f"/{draw(words)}/{draw(words)}{suffix}"
    members = [f"{draw(words)}=={draw(words)}/{draw(words)}/{draw(words)}"]
    if kind == "joined":
        members += draw(st.lists(st.one_of(words, st.builds("{}=={}/{}".format, words, words, words)), max_size=3))
    return f"pypi:{','.join(members)}{suffix}"


@given(st.dictionaries(names, sources(), max_size=5), st.sampled_from([",", " , ", ",,", ", ,"]))
def test_what_is_written_together_is_read_as_if_written_alone(models, separator):
    written = separator.join(f"{name}={source}" for name, source in models.items())
    expected = tuple(ModelEntry(name, parse_source(source)) for name, source in models.items())
    assert parse_models(written) == expected


@given(st.text())
@example("a=pypi:p==1/x,==,b")
@example("a=hf:\x00/\x00")
def test_any_text_is_read_or_refused_in_one_line(text):
    messages = ["nothing wrong"]
    try:
        parse_models(text)
    except SourceError as error:
        messages = error.message.splitlines()
    assert len(messages) == 1
