"""How each pre-tokenizer rule cuts text."""

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from memra.chat.pre_tokenizers import find_rule, rule_names
from memra.errors import UnsupportedModelError

SAMPLE = "It's HelloWorld 1234567 x=1;\n\n  na\u00efve \u0e01\u0e34\u6211\u60f3\u3042 \U0001f680!! \r\n\t end  "


def words(name: str, text: str) -> list[str]:
    splits = [Split(Regex(pattern), "isolated") for pattern in find_rule(name).patterns]
    return [word for word, _ in Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", rule_names())
def test_every_rule_cuts_text_without_losing_any(name: str):
    assert "".join(words(name, SAMPLE)) == SAMPLE
    assert len(words(name, SAMPLE)) > 5


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "It's 1234 we'LL", ["It", "'s", " 1234", " we", "'", "LL"]),
        ("llama-bpe", "It'S 12345", ["It", "'S", " ", "123", "45"]),
        ("qwen2", "x 123\n\n a", ["x", " ", "1", "2", "3", "\n\n", " a"]),
        ("qwen35", "a\u0301b", ["a\u0301b"]),
        ("qwen2", "a\u0301b", ["a", "\u0301b"]),
        ("starcoder", "x12", ["x", "1", "2"]),
        ("falcon", "a==1234", ["a", "==", "123", "4"]),
        ("gpt-4o", "HelloWorld's a/b\n", ["Hello", "World's", " a", "/b", "\n"]),
        ("tekken", "HelloWorld's 12", ["Hello", "World", "'s", " ", "1", "2"]),
        ("deepseek-v3", "a\u6211\u60f3b1234", ["a", "\u6211\u60f3", "b", "123", "4"]),
        ("deepseek-llm", "ab \u0561", ["ab", " \u0561"]),
        ("kimi-k2", "ab\u6211\u60f3Cd", ["ab", "\u6211\u60f3", "Cd"]),
        ("tiny_aya", "a1234567", ["a", "1", "234", "567"]),
        ("afmoe", "a1234567", ["a", "1", "234", "567"]),
        ("superbpe", "a b1234567", ["a b", "1", "234", "567"]),
        ("bailingmoe", "it's 12\n\nx", ["it", "'s", " ", "1", "2", "\n\n", "x"]),
        ("seed-coder", "x();\n", ["x", "();", "\n"]),
        ("ufakzeka", "Ankara'd\u0131r", ["Ankara", "'d\u0131r"]),
        ("viking", "a12 b.", ["a", "1", "2", " b", "."]),
        ("bloom", "a12 b.", ["a12", " b", "."]),
        ("jais-2", "a" + " " * 7 + "b", ["a", " " * 4, " " * 2, " b"]),
    ],
)
def test_rules_cut_where_their_models_do(name: str, text: str, expected: list[str]):
    assert words(name, text) == expected


@pytest.mark.parametrize("name", ["tiny_aya", "afmoe", "superbpe"])
def test_huge_numbers_are_grouped_from_the_right(name: str):
    for length in (509, 510, 511, 1022):
        lengths = [len(word) for word in words(name, "x" + "7" * length)[1:]]
        assert lengths == [length % 3] * (length % 3 > 0) + [3] * (length // 3)


def test_names_of_one_rule_share_it():
    assert find_rule("llama3") is find_rule("llama-bpe")
    assert find_rule("smollm") is find_rule("starcoder")
    assert find_rule("llama4") is find_rule("gpt-4o")


def test_unknown_names_are_refused():
    with pytest.raises(UnsupportedModelError, match="'hybriddna'"):
        find_rule("hybriddna")
