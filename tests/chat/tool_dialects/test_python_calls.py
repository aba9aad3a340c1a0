"""Calls as Python writes them, and the other ways of Llama."""

import pytest

from memra.chat.tool_dialects.contract import CallEnded, TextPiece
from memra.chat.tool_dialects.lfm2 import Lfm2Dialect
from memra.chat.tool_dialects.llama import LlamaDialect
from tests.chat.tool_dialects.written_answers import calls_of, read, text_of

_LLAMA = LlamaDialect(is_pythonic=True)


def _calls(answer: str) -> list:
    whole = read(_LLAMA, [answer])
    assert read(_LLAMA, list(answer)) == whole
    return calls_of(whole)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"a\\n\\tb"', "a\n\tb"),
        ("'\\x41\\u00e9\\U0001F642'", "A\u00e9\U0001f642"),
        ("'''a'b\"c'''", "a'b\"c"),
        ("''", ""),
        ("'\\d+'", "\\d+"),
        ("'a\nb'", "a\nb"),
    ],
)
def test_a_python_string_says_the_same_in_json(written: str, value: str) -> None:
    assert _calls(f"[search(city={written})]") == [("search", {"city": value})]


def test_python_and_json_names_tuples_and_trailing_commas_are_read() -> None:
    answer = "[search(options={'a': (True, None, false), 'b': [1, 2.5,],}, days=-3,)]"
    assert _calls(answer) == [("search", {"options": {"a": [True, None, False], "b": [1, 2.5]}, "days": -3})]


def test_values_are_turned_to_the_declared_type() -> None:
    assert _calls("[search(city=94110, days='3', is_exact='true')]") == [
        ("search", {"city": "94110", "days": 3, "is_exact": True})
    ]


@pytest.mark.parametrize(
    "answer", ["[search('x')]", "[search(city=x)]", "[search(days=1+1)]", "[search(options={a: 1})]", "[search(1)]"]
)
def test_what_is_no_literal_is_shown(answer: str) -> None:
    pieces = read(_LLAMA, list(answer))
    assert not any(isinstance(piece, CallEnded) for piece in pieces)
    assert text_of(pieces) == answer


@pytest.mark.parametrize("answer", ["[1] see the note", "[search] it", "[[now()]]", "[search (x)]", "[]", "["])
def test_prose_in_brackets_is_shown(answer: str) -> None:
    assert read(_LLAMA, list(answer)) == [TextPiece(answer)]


def test_llama_calls_bare_objects_with_semicolons_between() -> None:
    answer = '{"name": "now", "parameters": {}}; {"name": "search", "parameters": {"days": 1}}'
    assert _calls(answer) == [("now", {}), ("search", {"days": 1})]


def test_llama_calls_its_own_tools_and_custom_functions() -> None:
    assert _calls('<|python_tag|>search.call(city="x")') == [("search", {"city": "x"})]
    assert _calls('Well. <function=search>{"city": "x"}</function>') == [("search", {"city": "x"})]


def test_json_may_stand_where_python_is_expected() -> None:
    answer = '<|tool_call_start|>[{"name": "search", "arguments": {"city": "x"}}]<|tool_call_end|>'
    assert calls_of(read(Lfm2Dialect(), list(answer))) == [("search", {"city": "x"})]
