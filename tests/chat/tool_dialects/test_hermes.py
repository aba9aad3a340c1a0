"""Hermes and Qwen2.5: JSON between tags, or alone."""

import pytest

from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded, TextPiece
from memra.chat.tool_dialects.hermes import HermesDialect
from tests.chat.tool_dialects.written_answers import read

_CALL = [CallBegun("now"), ArgumentsPiece("{}"), CallEnded()]


def _read(answer: str) -> list:
    whole = read(HermesDialect(), [answer])
    assert read(HermesDialect(), list(answer)) == whole
    return whole


def test_a_whole_answer_that_is_one_bare_call_is_that_call() -> None:
    assert _read('\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n') == [
        CallBegun("get_weather"),
        ArgumentsPiece('{"city": "Paris"}'),
        CallEnded(),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "Rome", "arguments": {}}',
        '{"name": "now", "inhabitants": 3}',
        '{"name": "now"}',
        '{"name": "now", "arguments": [1]}',
        '["now"]',
        "{}",
        '{"name": "now", "arguments": 1}',
    ],
)
def test_a_bare_object_that_is_no_call_is_shown(answer: str) -> None:
    assert _read(answer) == [TextPiece(answer)]


def test_a_bare_call_with_text_behind_it_never_ends_and_is_shown() -> None:
    answer = '{"name": "now", "arguments": {}} is how one asks.'
    assert _read(answer) == [CallBegun("now"), ArgumentsPiece("{}"), TextPiece(answer)]


def test_a_bare_call_may_have_lost_its_opening_tag() -> None:
    assert _read('{"name": "now", "arguments": {}}\n</tool_call>') == _CALL


def test_arguments_may_come_before_the_name() -> None:
    assert _read('<tool_call>{"arguments": {"days": 1}, "name": "search"}</tool_call>') == [
        CallBegun("search"),
        ArgumentsPiece('{"days": 1}'),
        CallEnded(),
    ]


@pytest.mark.parametrize("arguments", ["null", "{}", '"{}"', '""'])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert _read(f'<tool_call>{{"name": "now", "arguments": {arguments}}}</tool_call>') == _CALL


def test_arguments_inside_a_string_are_unwrapped() -> None:
    assert _read('<tool_call>{"name": "search", "arguments": "{\\"days\\": 1}"}</tool_call>') == [
        CallBegun("search"),
        ArgumentsPiece('{"days": 1}'),
        CallEnded(),
    ]


def test_a_closing_tag_may_be_missing_and_several_calls_may_share_one_block() -> None:
    call = '{"name": "now", "arguments": {}}'
    assert _read(f"<tool_call>{call}") == _CALL
    assert _read(f"<tool_call>{call}\n<tool_call>{call}") == _CALL * 2
    assert _read(f"<tool_call>\n{call}\n{call}\n</tool_call>") == _CALL * 2
    assert _read(f"<tool_call>[{call}, {call}]</tool_call>") == _CALL * 2


def test_a_call_whose_last_brace_is_missing_at_the_end_is_complete() -> None:
    assert _read('<tool_call>{"name": "now", "arguments": {}') == _CALL


def test_a_control_character_in_a_string_is_escaped() -> None:
    assert _read('<tool_call>{"name": "now", "arguments": {"city": "a\nb"}}</tool_call>')[1] == ArgumentsPiece(
        '{"city": "a\\nb"}'
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "{'a': 1}",
        '{"a": 01}',
        '{"a": tru}',
        '{"a": 1,}',
        '{"a" 1}',
        '{"a": "\\x"}',
        '{"a": +1}',
        "{a: 1}",
        '{"a": NaN}',
    ],
)
def test_arguments_that_are_not_json_leave_the_call_open_and_are_shown(arguments: str) -> None:
    answer = f'Well.\n<tool_call>{{"name": "now", "arguments": {arguments}}}</tool_call> Done.'
    pieces = _read(answer)
    assert not any(isinstance(piece, CallEnded) for piece in pieces)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == answer


def test_too_deep_arguments_are_shown() -> None:
    answer = '<tool_call>{"name": "now", "arguments": {"a": ' + "[" * 70 + "]" * 70 + "}}</tool_call>"
    assert not any(isinstance(piece, CallEnded) for piece in _read(answer))


def test_a_call_follows_one_that_was_none() -> None:
    answer = 'Use <tool_call> so: <tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert _read(answer) == [TextPiece("Use <tool_call> so:"), *_CALL]


def test_a_call_whose_arguments_are_whole_is_one_though_the_braces_after_them_are_missing() -> None:
    answer = '<tool_call>\n{"name": "now", "arguments": {"city": "Rome"}'
    for end in ("", "}", "}\n</tool_", "}\n</tool_call>"):
        assert read(HermesDialect(), list(answer + end)) == [
            CallBegun("now"),
            ArgumentsPiece('{"city": "Rome"}'),
            CallEnded(),
        ]
