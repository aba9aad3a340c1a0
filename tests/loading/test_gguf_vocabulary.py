import logging
from pathlib import Path

import pytest

from memra.errors import CorruptFileError
from memra.loading.gguf_vocabulary import read_vocabulary
from memra.messages.vocabulary import TokenizerKind, Vocabulary

PATH = Path("model.gguf")
MINIMAL = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ("<unk>", "<s>", "</s>", "a")}


def _read(**changes: object) -> Vocabulary:
    return read_vocabulary({**MINIMAL, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}, path=PATH)


def test_a_minimal_vocabulary_has_defaults():
    vocabulary = _read()
    assert vocabulary.kind is TokenizerKind.SENTENCEPIECE_BPE
    assert vocabulary.pre == "default"
    assert vocabulary.scores == vocabulary.token_types == vocabulary.merges == ()
    assert vocabulary.bos_id is vocabulary.add_bos is vocabulary.chat_template is None


def test_every_key_reaches_its_field():
    template = {"tokenizer.chat_template": "{{ messages }}"}
    keys = {
        "pre": "llama-bpe",
        "merges": ("a b",),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "eot_token_id": 3,
        "unknown_token_id": 0,
        "padding_token_id": 0,
        "seperator_token_id": 2,
        "mask_token_id": 3,
        "cls_token_id": 1,
        "add_bos_token": True,
        "add_eos_token": False,
        "add_space_prefix": False,
        "remove_extra_whitespaces": True,
        "normalizer.lowercase": False,
        "normalizer.strip_accents": True,
        "precompiled_charsmap": (-1, 0, 127),
    }
    metadata = {**MINIMAL, **template, **{f"tokenizer.ggml.{key}": value for key, value in keys.items()}}
    vocabulary = read_vocabulary(metadata, path=PATH)
    assert vocabulary.pre == "llama-bpe"
    assert vocabulary.merges == ("a b",)
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.eot_id, vocabulary.unknown_id) == (1, 2, 3, 0)
    assert (vocabulary.padding_id, vocabulary.separator_id, vocabulary.mask_id, vocabulary.cls_id) == (0, 2, 3, 1)
    assert (vocabulary.add_bos, vocabulary.add_eos) == (True, False)
    assert (vocabulary.add_space_prefix, vocabulary.remove_extra_whitespaces) == (False, True)
    assert (vocabulary.lowercase, vocabulary.strip_accents) == (False, True)
    assert vocabulary.precompiled_charsmap == b"\xff\x00\x7f"
    assert vocabulary.chat_template == "{{ messages }}"


def test_every_token_that_ends_an_answer_is_kept_once():
    vocabulary = _read(eos_token_id=2, eot_token_id=3, eom_token_id=1, fim_pad_token_id=2, fim_rep_token_id=9)
    assert vocabulary.end_ids == (2, 3, 1)
    assert _read(fim_rep_token_id=1, fim_sep_token_id=3).end_ids == (1, 3)
    assert _read().end_ids == ()


def test_named_templates_are_read_by_their_list():
    keys = {"tokenizer.chat_templates": ("tool_use", "absent"), "tokenizer.chat_template.tool_use": "tools"}
    assert read_vocabulary({**MINIMAL, **keys}, path=PATH).named_templates == {"tool_use": "tools"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tokens": ()}, "no tokens"),
        ({"tokens": (1, 2)}, "'tokens'"),
        ({"tokens": "abc"}, "'tokens'"),
        ({"scores": (0.0,)}, "'scores' has 1 entries for 4 tokens"),
        ({"scores": (1, 2, 3, 4)}, "'scores'"),
        ({"token_type": (1, 1, 1)}, "'token_type' has 3"),
        ({"merges": (1,)}, "'merges'"),
        ({"bos_token_id": "one"}, "'bos_token_id'"),
        ({"add_bos_token": 1}, "'add_bos_token'"),
        ({"model": 3}, "'model'"),
        ({"model": None}, "no tokenizer"),
    ],
)
def test_a_key_of_the_wrong_type_or_length_is_named(changes, named):
    with pytest.raises(CorruptFileError, match=named) as caught:
        _read(**changes)
    assert "model.gguf" in caught.value.message


@pytest.mark.parametrize(
    ("pre", "kind"),
    [
        ("gpt-2", TokenizerKind.BYTE_BPE),
        (None, TokenizerKind.BYTE_BPE),
        ("gemma4", TokenizerKind.GEMMA4_BPE),
        ("granite-embed-multi-311m", TokenizerKind.GEMMA4_BPE),
        ("sarvam-moe", TokenizerKind.GEMMA4_BPE),
    ],
)
def test_the_rule_tells_whether_a_gpt2_vocabulary_merges_bytes_or_characters(pre, kind):
    assert _read(model="gpt2", pre=pre).kind is kind
    assert _read(model="llama", pre=pre).kind is TokenizerKind.SENTENCEPIECE_BPE


@pytest.mark.parametrize("token_id", [4, 0xFFFFFFFF, -1])
def test_a_special_id_outside_the_vocabulary_is_dropped_with_a_warning(caplog, token_id):
    with caplog.at_level(logging.WARNING):
        vocabulary = _read(padding_token_id=token_id)
    assert vocabulary.padding_id is None
    assert "padding_token_id" in caplog.text
