"""`tokenizer.model` and the files beside it."""

import random
from pathlib import Path

import pytest

from memra.chat.tokenizer import build_tokenizer
from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.loading.sentencepiece_file import read_sentencepiece
from memra.messages.vocabulary import TokenizerKind, TokenType
from tests.loading.model_directory import VOCAB, write_directory, write_json
from tests.loading.sentencepiece_bytes import PIECES, chunk, model, number


def _directory(path: Path, content: bytes | None = None) -> Path:
    write_directory(path, "llama")
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model() if content is None else content)
    return path


def test_pieces_scores_types_and_ids_are_read(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(normaliser=number(3, 0) + number(4, 0) + chunk(2, b"")))
    found = read_sentencepiece(path)
    assert found.kind is TokenizerKind.SENTENCEPIECE_BPE
    assert list(zip(found.tokens, found.scores, found.token_types, strict=True)) == list(PIECES)
    assert (found.unknown_id, found.bos_id, found.eos_id, found.padding_id) == (0, 1, 2, None)
    assert (found.add_space_prefix, found.remove_extra_whitespaces, found.precompiled_charsmap) == (False, False, None)


def test_a_unigram_model_keeps_its_table(tmp_path):
    pieces = [entry for entry in PIECES if entry[2] != TokenType.BYTE]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(pieces, trainer=number(3, 1) + number(41, -1), normaliser=chunk(2, b"table")))
    found = read_sentencepiece(path)
    assert (found.kind, found.precompiled_charsmap, found.bos_id) == (TokenizerKind.UNIGRAM, b"table", None)
    assert found.add_space_prefix
    assert found.remove_extra_whitespaces


def test_a_directory_without_tokenizer_json_speaks_through_it(tmp_path):
    path = _directory(tmp_path)
    vocabulary = open_directory(path).vocabulary
    assert vocabulary.kind is TokenizerKind.SENTENCEPIECE_BPE
    assert len(vocabulary.tokens) == len(vocabulary.scores) == len(vocabulary.token_types) == VOCAB
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.unknown_id) == (1, 2, 0)
    tokenizer = build_tokenizer(vocabulary)
    ids = tokenizer.encode("ab\n", add_special=True, parse_special=True)
    assert ids == (1, 8, 3)
    assert tokenizer.decode(ids) == "ab\n"


def test_tokens_of_the_other_files_are_added(tmp_path):
    path = _directory(tmp_path)
    write_json(path / "added_tokens.json", {"<tool>": 9, "<end>": 10})
    added = {"10": {"content": "<end>", "special": True}, "1": {"content": "<s>", "special": True}}
    write_json(path / "tokenizer_config.json", {"eos_token": "<end>", "added_tokens_decoder": added})
    vocabulary = open_directory(path).vocabulary
    assert vocabulary.tokens[9:] == ("<tool>", "<end>", "[PAD11]")
    assert vocabulary.token_types[9:] == (TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNUSED)
    assert (vocabulary.bos_id, vocabulary.eos_id) == (1, 10)
    tokenizer = build_tokenizer(vocabulary)
    assert tokenizer.encode("<tool>ab", add_special=False, parse_special=True)[0] == 9


@pytest.mark.parametrize("key", ["-1", "x", "9" * 40, "4194304"])
def test_an_added_token_outside_the_vocabulary_is_refused(tmp_path, key):
    path = _directory(tmp_path)
    write_json(path / "tokenizer_config.json", {"added_tokens_decoder": {key: {"content": "<end>"}}})
    with pytest.raises(CorruptFileError, match="add"):
        _ = open_directory(path).vocabulary


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", CorruptFileError),
        (b"not a protocol buffer", CorruptFileError),
        (b"\xff" * 40, CorruptFileError),
        (model()[:-5], CorruptFileError),
        (model([("\ufffd", 0.0, 9)]), CorruptFileError),
        (chunk(1, chunk(1, b"\xff")), CorruptFileError),
        (model(trainer=number(3, 3)), UnsupportedModelError),
        (model(trainer=number(3, 1)), UnsupportedModelError),
        (model(normaliser=chunk(2, b"table")), UnsupportedModelError),
    ],
)
def test_another_file_under_that_name_is_refused(tmp_path, content, error):
    path = _directory(tmp_path, content)
    with pytest.raises(error, match=r"tokenizer\.model"):
        _ = open_directory(path).vocabulary


def test_no_tokenizer_at_all_is_named(tmp_path):
    path = _directory(tmp_path)
    (path / "tokenizer.model").unlink()
    with pytest.raises(SourceError, match=r"tokenizer\.json nor tokenizer\.model"):
        _ = open_directory(path).vocabulary


def test_every_mutation_is_refused_or_read(tmp_path):
    rng = random.Random(4)  # noqa: S311  (reproducible, not secret)
    path, whole = tmp_path / "tokenizer.model", model()
    outcomes = {"refused": 0, "read": 0}
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randint(1, len(content))] if rng.random() < 0.2 else content)
        try:
            read_sentencepiece(path)
            outcomes["read"] += 1
        except (CorruptFileError, UnsupportedModelError):
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 100
