"""Every kind of tokenizer on a vocabulary small enough to work out by hand."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from memra.chat.byte_alphabet import BYTE_OF_CHAR, bytes_of
from memra.chat.tokenizer import Tokenizer, build_tokenizer
from memra.errors import CorruptFileError, UnsupportedModelError
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary

N, U, C, D, X, B = (TokenType(number) for number in range(1, 7))
BYTES = tuple(sorted(BYTE_OF_CHAR, key=BYTE_OF_CHAR.__getitem__))


def byte_bpe(*extra: str, types: tuple[TokenType, ...] = (), **fields: object) -> Vocabulary:
    """256 byte tokens, `ab`, `abc`, then the given ones, control tokens unless typed otherwise."""
    tokens = (*BYTES, "ab", "abc", *extra)
    extra_types = types or (C,) * len(extra)
    return replace(
        Vocabulary(kind=TokenizerKind.BYTE_BPE, pre="qwen2", tokens=tokens, merges=("a b", "ab c")),
        token_types=(*(N,) * (len(tokens) - len(extra)), *extra_types),
        **fields,
    )


def sentencepiece(
    pieces: dict[str, float], *, types: dict[str, TokenType] | None = None, **fields: object
) -> Vocabulary:
    """`<unk>`, `<s>`, `</s>`, the 256 byte tokens, then the given pieces with their scores."""
    byte_tokens = tuple(f"<0x{byte:02X}>" for byte in range(256))
    kinds = tuple((types or {}).get(piece, N) for piece in pieces)
    return replace(
        Vocabulary(kind=TokenizerKind.SENTENCEPIECE_BPE, tokens=("<unk>", "<s>", "</s>", *byte_tokens, *pieces)),
        scores=(*(0.0,) * 259, *pieces.values()),
        token_types=(U, C, C, *(B,) * 256, *kinds),
        **fields,
    )


def plain(tokenizer: Tokenizer, text: str) -> tuple[str, ...]:
    return tuple(tokenizer.tokens[i] for i in tokenizer.encode(text, add_special=False, parse_special=False))


def parsed(tokenizer: Tokenizer, text: str) -> tuple[str, ...]:
    return tuple(tokenizer.tokens[i] for i in tokenizer.encode(text, add_special=False, parse_special=True))


def test_byte_alphabet_covers_every_byte_once():
    assert sorted(BYTE_OF_CHAR.values()) == list(range(256))
    assert bytes_of("\u0120a\u010a") == b" a\n"
    assert bytes_of("\uff5cx") == "\uff5cx".encode()


def test_byte_bpe_merges_by_rank():
    tokenizer = build_tokenizer(byte_bpe())
    assert plain(tokenizer, "abcab") == ("abc", "ab")
    assert plain(tokenizer, "") == ()
    assert (
        tokenizer.decode(tokenizer.encode("\u00e9 \U0001f680", add_special=True, parse_special=True))
        == "\u00e9 \U0001f680"
    )


def test_control_tokens_are_read_only_when_asked():
    tokenizer = build_tokenizer(byte_bpe("<|im_end|>", "<think>", types=(C, D)))
    assert parsed(tokenizer, "ab<|im_end|>ab") == ("ab", "<|im_end|>", "ab")
    assert "<|im_end|>" not in plain(tokenizer, "ab<|im_end|>ab")
    assert plain(tokenizer, "ab<think>") == ("ab", "<think>")


def test_a_whole_word_that_is_a_control_token_stays_a_word():
    tokenizer = build_tokenizer(byte_bpe("ab.", "stop", types=(N, C), pre="llama-bpe", bos_id=258, add_bos=False))
    assert plain(tokenizer, "stop") == ("s", "t", "o", "p")
    assert parsed(tokenizer, "stop") == ("stop",)


def test_merges_ignoring_rules_take_a_known_word_whole():
    known = byte_bpe("xyz", types=(N,), bos_id=0)
    assert plain(build_tokenizer(replace(known, pre="qwen2")), "xyz") == ("x", "y", "z")
    assert plain(build_tokenizer(replace(known, pre="llama-bpe")), "xyz") == ("xyz",)


def test_the_longest_special_token_wins():
    tokenizer = build_tokenizer(byte_bpe("<|a|>", "<|a|><|b|>"))
    assert parsed(tokenizer, "<|a|><|b|><|a|>") == ("<|a|><|b|>", "<|a|>")


def test_repeated_and_empty_token_texts_do_no_harm():
    vocabulary = byte_bpe("", "ab", "", "<|x|>", "cd", types=(N, N, C, C, N), merges=("a b", "c d"))
    tokenizer = build_tokenizer(vocabulary)
    assert tokenizer.encode("ab<|x|>cd", add_special=False, parse_special=True) == (259, 261, 262)


def test_begin_of_text_follows_the_file_before_the_rule():
    llama = byte_bpe("<|begin_of_text|>", pre="llama-bpe", bos_id=258)
    assert build_tokenizer(llama).prefix_ids == (258,)
    assert build_tokenizer(replace(llama, add_bos=False)).prefix_ids == ()
    assert build_tokenizer(replace(llama, pre="qwen2")).prefix_ids == ()
    assert build_tokenizer(replace(llama, pre="qwen2", add_bos=True)).prefix_ids == (258,)


def test_begin_and_end_of_text_are_not_put_there_twice():
    tokenizer = build_tokenizer(byte_bpe("<s>", "<e>", bos_id=258, eos_id=259, add_bos=True, add_eos=True))
    assert tokenizer.encode("ab", add_special=True, parse_special=True) == (258, 256, 259)
    assert tokenizer.encode("<s>ab<e>", add_special=True, parse_special=True) == (258, 256, 259)
    assert tokenizer.encode("", add_special=True, parse_special=True) == (258, 259)
    assert (tokenizer.bos_text, tokenizer.eos_text) == ("<s>", "<e>")


def test_control_tokens_add_no_bytes_unless_asked():
    tokenizer = build_tokenizer(byte_bpe("<|im_end|>", "<think>", "[PAD1]", types=(C, D, X)))
    assert tokenizer.token_bytes(258) == b""
    assert tokenizer.token_bytes(258, show_control=True) == b"<|im_end|>"
    assert tokenizer.token_bytes(259) == b"<think>"
    assert tokenizer.token_bytes(260) == b""
    assert tokenizer.decode((256, 258, 259)) == "ab<think>"
    assert tokenizer.decode((256, 258), show_control=True) == "ab<|im_end|>"


def test_ids_without_a_token_add_nothing():
    tokenizer = build_tokenizer(byte_bpe())
    assert tokenizer.token_bytes(5000) == tokenizer.token_bytes(-1) == b""
    assert tokenizer.decode((256, 5000)) == "ab"
    assert tokenizer.vocab_size == 258


def test_turn_ends_are_found_by_name_whatever_their_type():
    tokenizer = build_tokenizer(byte_bpe("<|im_end|>", "<|eom_id|>", types=(N, D), eos_id=0, eot_id=1))
    assert tokenizer.eos_ids == {0, 1, 258, 259}
    assert tokenizer.control_ids == {258, 259}


def test_html_strike_through_ends_a_turn_only_as_control_token():
    assert 258 not in build_tokenizer(byte_bpe("</s>", types=(N,))).eos_ids
    assert 258 not in build_tokenizer(byte_bpe("</s>", types=(D,))).eos_ids
    assert 258 in build_tokenizer(byte_bpe("</s>", types=(C,))).eos_ids


def test_harmony_messages_end_without_ending_the_turn():
    names = ("<|end|>", "<|return|>", "<|call|>", "<|channel|>")
    tokenizer = build_tokenizer(byte_bpe(*names))
    assert tokenizer.eos_ids == {259, 260}
    assert tokenizer.decode((261, 256, 258)) == "<|channel|>ab<|end|>"
    assert "<|channel|>" not in plain(tokenizer, "<|channel|>")
    assert 258 in build_tokenizer(byte_bpe("<|end|>")).eos_ids


def test_unknown_pre_tokenizers_are_refused_by_name():
    with pytest.raises(UnsupportedModelError, match="pre-tokenizer 'martian'"):
        build_tokenizer(byte_bpe(pre="martian"))


def test_byte_bpe_without_merge_rules_is_refused():
    with pytest.raises(UnsupportedModelError, match="no merge rules"):
        build_tokenizer(byte_bpe(merges=()))


def test_a_required_begin_of_text_that_is_missing_is_refused():
    with pytest.raises(CorruptFileError, match="begin of text"):
        build_tokenizer(byte_bpe(add_bos=True))


def test_half_surrogate_pairs_count_as_replacement_characters():
    tokenizer = build_tokenizer(byte_bpe())
    ids = tokenizer.encode("a\ud800b\U0001f680", add_special=False, parse_special=False)
    assert tokenizer.decode(ids) == "a\ufffdb\U0001f680"


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes():
    pieces = {"\u2581": -9.0, "a": -9.0, "b": -9.0, "ab": -2.0, "\u2581a": -1.0, "\u2581ab": -5.0}
    tokenizer = build_tokenizer(sentencepiece(pieces))
    assert plain(tokenizer, "ab") == ("\u2581ab",)
    assert plain(tokenizer, "bab") == ("\u2581", "b", "ab")
    assert plain(tokenizer, "a\u00e9") == ("\u2581a", "<0xC3>", "<0xA9>")
    del pieces["\u2581ab"]
    assert plain(build_tokenizer(sentencepiece(pieces)), "ab") == ("\u2581a", "b")
    assert tokenizer.encode("ab", add_special=True, parse_special=False)[0] == 1
    assert tokenizer.eos_ids == {2}


def test_sentencepiece_puts_a_space_before_each_stretch_of_text():
    pieces = {"\u2581": -9.0, "a": -9.0, "\u2581a": -1.0}
    tokenizer = build_tokenizer(sentencepiece(pieces))
    assert parsed(tokenizer, "a</s>a") == ("\u2581a", "</s>", "\u2581a")
    assert tokenizer.decode(tokenizer.encode(" a", add_special=True, parse_special=True)) == " a"
    bare = build_tokenizer(sentencepiece(pieces, add_space_prefix=False))
    assert parsed(bare, "a</s> a") == ("a", "</s>", "\u2581a")
    assert bare.decode(bare.encode(" a", add_special=True, parse_special=True)) == " a"


def test_sentencepiece_never_spells_byte_or_control_tokens():
    pieces = dict.fromkeys("</s>0xA▁", -9.0) | {"</": -1.0, "</s": -1.0, "<0": -1.0, "<0x": -1.0, "<0x0": -1.0}
    tokenizer = build_tokenizer(sentencepiece(pieces | {"<0x0A": -1.0}))
    assert plain(tokenizer, "</s>") == ("\u2581", "</s", ">")
    assert plain(tokenizer, "<0x0A>") == ("\u2581", "<0x0A", ">")


def test_sentencepiece_wants_a_score_for_every_token():
    with pytest.raises(CorruptFileError, match="0 scores for 260 tokens"):
        build_tokenizer(replace(sentencepiece({"a": -1.0}), scores=()))


def test_gemma4_merges_raw_characters_within_lines():
    tokens = (
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "\u2581",
        "a",
        "\n",
        "\u2581a",
        "\n\n",
    )
    vocabulary = Vocabulary(
        kind=TokenizerKind.GEMMA4_BPE,
        tokens=tokens,
        token_types=(C, C, C, C, *(B,) * 256, N, N, N, N, N),
        merges=("\u2581 a", "\n \n"),
        bos_id=2,
        eos_id=1,
        unknown_id=3,
        add_bos=False,
    )
    tokenizer = build_tokenizer(vocabulary)
    assert plain(tokenizer, "a a\n\n\u00e9") == ("a", "\u2581a", "\n\n", "<0xC3>", "<0xA9>")
    assert tokenizer.prefix_ids == (2,)
    assert tokenizer.decode(tokenizer.encode("a a\n\u00e9", add_special=True, parse_special=True)) == "a a\n\u00e9"


def test_unigram_takes_the_best_sum_of_scores():
    pieces = {
        "<pad>": 0.0,
        "</s>": 0.0,
        "<unk>": 0.0,
        "\u2581": -3.0,
        "a": -3.0,
        "b": -3.0,
        "ab": -4.0,
        "\u2581ab": -9.0,
    }
    vocabulary = Vocabulary(
        kind=TokenizerKind.UNIGRAM,
        tokens=tuple(pieces),
        scores=tuple(pieces.values()),
        token_types=(C, C, U, N, N, N, N, N),
        add_space_prefix=True,
        remove_extra_whitespaces=True,
    )
    tokenizer = build_tokenizer(vocabulary)
    assert plain(tokenizer, "ab") == ("\u2581", "ab")
    assert plain(tokenizer, "  ab   b ") == ("\u2581", "ab", "\u2581", "b")
    assert plain(tokenizer, "a??b") == ("\u2581", "a", "<unk>", "b")
    assert "</s>" not in plain(tokenizer, "a</s>\U0010ffff1")
    assert parsed(tokenizer, "a</s>") == ("\u2581", "a", "</s>")
    assert tokenizer.encode("a", add_special=True, parse_special=False)[-1] == 1


def test_wordpiece_takes_the_longest_beginning():
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581play", "\u2581a", "ing", "s", "\u2581!")
    vocabulary = Vocabulary(
        kind=TokenizerKind.WORDPIECE,
        tokens=tokens,
        token_types=(C, C, C, C, N, N, N, N, N),
        unknown_id=1,
        cls_id=2,
        separator_id=3,
    )
    tokenizer = build_tokenizer(vocabulary)
    assert plain(tokenizer, "Playing \u00c0 plays!") == ("\u2581play", "ing", "\u2581a", "\u2581play", "s", "\u2581!")
    assert plain(tokenizer, "zzz [CLS]")[0] == "[UNK]"
    assert "[CLS]" not in plain(tokenizer, "[CLS]")
    assert tokenizer.encode("a", add_special=True, parse_special=False) == (2, 5, 3)
    assert tokenizer.decode((2, 4, 6, 5, 3)) == "playing a"


def library_json() -> str:
    library = LibraryTokenizer(BPE(vocab={char: i for i, char in enumerate(BYTES)} | {"ab": 256}, merges=[("a", "b")]))
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevelDecoder()
    library.add_tokens([AddedToken("<s>", special=True), AddedToken("<|im_end|>", special=True), AddedToken("<think>")])
    library.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    library.enable_truncation(2)
    text: str = library.to_str()
    return text


def test_tokenizer_json_is_run_as_it_is():
    vocabulary = Vocabulary(
        kind=TokenizerKind.TOKENIZER_JSON, tokens=(), tokenizer_json=library_json(), bos_id=257, eos_id=258
    )
    tokenizer = build_tokenizer(vocabulary)
    assert tokenizer.encode("abab", add_special=True, parse_special=True) == (257, 256, 256)
    assert parsed(tokenizer, "ab<|im_end|>") == ("ab", "<|im_end|>")
    assert "<|im_end|>" not in plain(tokenizer, "ab<|im_end|>")
    assert tokenizer.eos_ids == {258}
    assert (tokenizer.bos_text, tokenizer.vocab_size) == ("<s>", 260)
    text = "<think>\u00e9 \U0001f680\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special=True, parse_special=True)) == text


def test_tokenizer_json_with_visible_spaces_gives_text_back():
    names = ["<unk>", "<0x0A>", "\u2581", "a", "\u2581a"]
    content = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
        "post_processor": None,
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
        "model": {
            "type": "BPE",
            "vocab": {n: i for i, n in enumerate(names)},
            "merges": [["\u2581", "a"]],
            "unk_token": "<unk>",
        },
    }
    vocabulary = Vocabulary(kind=TokenizerKind.TOKENIZER_JSON, tokens=(), tokenizer_json=json.dumps(content))
    tokenizer = build_tokenizer(vocabulary)
    assert plain(tokenizer, "a a") == ("\u2581a", "\u2581a")
    assert tokenizer.decode((4, 1, 4)) == "a\n a"


@pytest.mark.parametrize("source", ["{", "{}", None])
def test_a_broken_tokenizer_json_is_refused(source: str | None):
    vocabulary = Vocabulary(kind=TokenizerKind.TOKENIZER_JSON, tokens=(), tokenizer_json=source)
    with pytest.raises(CorruptFileError, match="fetch"):
        build_tokenizer(vocabulary)


def test_threads_may_share_a_tokenizer():
    tokenizer = build_tokenizer(byte_bpe("<|x|>"))
    texts = [f"abc {number}<|x|>\u00e9" for number in range(200)]
    alone = [parsed(tokenizer, text) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda text: parsed(tokenizer, text), texts)) == alone


def test_repr_gives_sizes_and_not_contents():
    assert repr(build_tokenizer(byte_bpe())) == "Tokenizer(vocab_size=258)"
