"""gpt-oss: messages to functions."""

from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded, TextPiece
from memra.chat.tool_dialects.harmony import HarmonyDialect
from tests.chat.tool_dialects.written_answers import read

_CALL = [CallBegun("search"), ArgumentsPiece('{"city": "x"}'), CallEnded()]


def _read(answer: str) -> list:
    whole = read(HarmonyDialect(), [answer])
    assert read(HarmonyDialect(), list(answer)) == whole
    return whole


def test_an_answer_may_begin_with_its_recipient_for_the_prompt_ends_with_the_role() -> None:
    assert _read(' to=functions.search<|channel|>commentary json<|message|>{"city": "x"}') == _CALL


def test_the_token_behind_a_call_may_be_missing_for_it_ends_the_answer() -> None:
    assert _read('<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"city": "x"}') == _CALL


def test_other_channels_pass() -> None:
    answer = "<|channel|>commentary<|message|>I will search.<|end|><|start|>assistant<|channel|>final<|message|>Done."
    assert _read(answer) == [TextPiece(answer)]
