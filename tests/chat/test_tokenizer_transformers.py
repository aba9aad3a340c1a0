"""Encoders' tokenizers against `transformers`: the real MiniLM, and small ones of each kind made here."""

from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from memra.chat.tokenizer import Tokenizer, build_tokenizer
from memra.loading.gguf_vocabulary import read_vocabulary
from memra.loading.tokenizer_files import read_tokenizer
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary

WORDS = (
    *("Hello", "hello, World!", "THE QUICK brown fox", "na\u00efve caf\u00e9", "\u00c5ngstr\u00f6m", "\u0130stanbul"),
    *("Stra\u00dfe", "running-shoes", "don't", "e-mail@example.org", "https://a.b/c?d=e&f", "3.14", "1,000,000"),
    *("$5 \u20ac6", "C++", "#tag", "\u6211\u60f3\u5728", "\u65e5\u672c\u8a9e\u3068", "\u30ab\u30bf\u30ab\u30ca"),
    *("\ud55c\uad6d\uc5b4", "\u043f\u0440\u0438\u0432\u0435\u0442", "\u0393\u03b5\u03b9\u03ac", "a\u0301", "\u00a0"),
    *("\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940"),
    *("\u0e01\u0e34\u0e19", "\U0001f680", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u3000", "\u200b", "\ufffd"),
    *("\t", "\r\n", "  ", "x" * 101, "antidisestablishmentarianism", "\u201cquoted\u201d \u2014 \u2026", "\x00\x07"),
    *("x [CLS] y [SEP] [MASK] z", "x <s></s> y", "\ufb01\ufb02", "\u00bd \u2167 \u00b2", "foo_bar(x) != 'y';"),
)
"""Special tokens stand inside: memra never puts one around a text twice, where the libraries do."""


def make_texts() -> list[str]:
    """More than 200 varied texts."""
    pairs = [f"{first} {second}" for first, second in zip(WORDS, WORDS[7:] + WORDS[:7], strict=True)]
    tight = [first + second for first, second in zip(WORDS, WORDS[3:] + WORDS[:3], strict=True)]
    long = [" ".join(WORDS[start : start + 9]) for start in range(len(WORDS))]
    return ["", " ", *WORDS, *pairs, *tight, *long, *(word.swapcase() for word in WORDS)]


TEXTS = make_texts()


def test_there_are_more_than_two_hundred_texts():
    assert len(set(TEXTS)) > 200


def _gguf_vocabulary(tokenizer: Library, **keys: object) -> Vocabulary:
    """The WordPiece vocabulary as converters write it."""
    special = {token_id for token_id, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    spelled = [
        token if token_id in special else token[2:] if token.startswith("##") else f"\u2581{token}"
        for token_id, token in enumerate(tokens)
    ]
    metadata = {
        "model": "bert",
        "pre": "jina-v2-en",
        "tokens": tuple(spelled),
        "token_type": tuple(int(TokenType.CONTROL if i in special else TokenType.NORMAL) for i in range(len(tokens))),
        "unknown_token_id": tokenizer.token_to_id("[UNK]"),
        "cls_token_id": tokenizer.token_to_id("[CLS]"),
        "seperator_token_id": tokenizer.token_to_id("[SEP]"),
        **keys,
    }
    return read_vocabulary({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, path=Path("model.gguf"))


def _check(ours: Tokenizer, theirs: Library) -> None:
    theirs.no_padding()
    theirs.no_truncation()
    for text in TEXTS:
        for special in (False, True):
            found = ours.encode(text, add_special=special, parse_special=True)
            assert list(found) == theirs.encode(text, add_special_tokens=special).ids, repr(text)


@pytest.mark.models
def test_minilm_is_tokenised_as_in_transformers(minilm_directory: Path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_directory)
    vocabulary = read_tokenizer(minilm_directory, {})
    library = Library.from_file(str(minilm_directory / "tokenizer.json"))
    for ours in (build_tokenizer(vocabulary), build_tokenizer(_gguf_vocabulary(library))):
        for text in TEXTS:
            expected = theirs(text, truncation=False, padding=False)["input_ids"]
            assert list(ours.encode(text, add_special=True, parse_special=True)) == expected, repr(text)


@pytest.mark.models
@pytest.mark.parametrize(
    ("lowercase", "strip_accents"), [(True, None), (False, None), (True, False), (False, True), (False, False)]
)
def test_wordpiece_lowercases_and_strips_accents_as_the_file_says(
    minilm_directory: Path,
    lowercase: bool,  # noqa: FBT001  (the value of a key)
    strip_accents: bool | None,  # noqa: FBT001  (as above)
):
    library = Library.from_file(str(minilm_directory / "tokenizer.json"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    keys: dict[str, object] = {"normalizer.lowercase": lowercase}
    if strip_accents is not None:
        keys["normalizer.strip_accents"] = strip_accents
    _check(build_tokenizer(_gguf_vocabulary(library, **keys)), library)


def _byte_bpe() -> Library:
    """As RoBERTa and ModernBERT have it: byte-level BPE with a token before and one after."""
    library = Library(BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevelDecoder()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=600, special_tokens=["[CLS]", "[SEP]", "[PAD]"], initial_alphabet=alphabet)
    library.train_from_iterator(TEXTS, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return library


def test_encoders_with_byte_bpe_get_cls_and_sep():
    import json  # noqa: PLC0415  (only here is the library's own file looked into)

    library = _byte_bpe()
    merges = [" ".join(pair) for pair in json.loads(library.to_str())["model"]["merges"]]
    tokens = sorted(library.get_vocab(), key=library.get_vocab().__getitem__)
    metadata: dict[str, object] = {
        "model": "gpt2",
        "pre": "modern-bert",
        "tokens": tuple(tokens),
        "token_type": (int(TokenType.CONTROL),) * 3 + (int(TokenType.NORMAL),) * (len(tokens) - 3),
        "merges": tuple(merges),
        "cls_token_id": 0,
        "seperator_token_id": 1,
        "add_bos_token": True,
        "add_eos_token": True,
    }
    keys = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    ours = build_tokenizer(read_vocabulary(keys, path=Path("model.gguf")))
    assert (ours.prefix_ids, ours.suffix_ids) == ((0,), (1,))
    _check(ours, library)
    named = {**keys, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.eos_token_id": 2}
    assert build_tokenizer(read_vocabulary(named, path=Path("model.gguf"))).prefix_ids == (2,)


def _unigram() -> Library:
    """As XLM-RoBERTa has it: unigram behind a normaliser, with visible spaces and tokens around a text."""
    library = Library(Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = MetaspaceDecoder()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = UnigramTrainer(vocab_size=600, special_tokens=special, unk_token=special[3])
    library.train_from_iterator(TEXTS, trainer)
    library.add_special_tokens([AddedToken(name, special=True) for name in special])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return library


@pytest.mark.parametrize("make", [_unigram, _byte_bpe])
def test_a_directory_with_any_kind_of_tokenizer_json_speaks_as_the_library_does(tmp_path: Path, make):
    library = make()
    library.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_tokenizer(tmp_path, {})
    assert vocabulary.kind is TokenizerKind.TOKENIZER_JSON
    assert len(vocabulary.tokens) == library.get_vocab_size()
    ours = build_tokenizer(vocabulary)
    _check(ours, Library.from_file(str(tmp_path / "tokenizer.json")))  # the one in memory has unrounded scores
    begin, end = ours.prefix_ids[0], ours.suffix_ids[0]
    assert {begin, end} <= ours.control_ids
    for text in ("Hello world", "THE QUICK brown fox", "don't \u6211\u60f3\u5728"):
        assert ours.decode(ours.encode(text, add_special=True, parse_special=False)) == text
