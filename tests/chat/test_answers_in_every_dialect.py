"""Whole answers in every dialect: thoughts, text and calls are the same however the answer comes, and nothing leaks."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from memra.chat.answer_reader import ChatAnswerReader
from memra.chat.call_reader import CallReader
from memra.chat.detokenizer import Detokenizer
from memra.chat.harmony_channels import HarmonySplitter
from memra.chat.reasoning import find_thought_style
from memra.messages.prompt import AnswerPiece
from tests.chat.read_answers import read, said
from tests.chat.texts import HARD_TEXT, WORDS_OF_THE_WORLD
from tests.chat.tool_dialects.written_answers import TOOLS, WRITTEN, Written

BYTES = tuple(bytes([byte]) for byte in range(256))
_EVERY = pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
_CASES = settings(max_examples=15, phases=[Phase.generate], deadline=None, derandomize=True, database=None)
"""With every dialect some 550 answers, each cut at every byte; what fails is short as it is."""

_TEXT = st.lists(st.sampled_from(WORDS_OF_THE_WORLD), max_size=5).map(" ".join)
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": st.sampled_from(WORDS_OF_THE_WORLD).map(str.strip),
        "days": st.integers(-9, 99),
        "is_exact": st.booleans(),
        "tags": st.lists(st.sampled_from(WORDS_OF_THE_WORLD).map(str.strip), max_size=2),
    },
)
_CALLS = st.lists(st.tuples(st.sampled_from(["get_weather", "search", "now"]), _ARGUMENTS), max_size=2)


@dataclass(frozen=True)
class Answer:
    """What a model means to say, and how it writes that."""

    thought: str
    text: str
    calls: list[tuple[str, dict[str, Any]]]
    raw: bytes


@st.composite
def answers(draw: st.DrawFn, written: Written) -> Answer:
    thought, text, calls = draw(_TEXT), draw(_TEXT), written.sayable(draw(_CALLS))
    return Answer(thought, text, calls, _write(written, thought, text, calls).encode())


def _write(written: Written, thought: str, text: str, calls: list[tuple[str, dict[str, Any]]]) -> str:
    called = written.write(calls) if calls else ""
    if written.dialect.name != "harmony":
        return (f"<think>\n{thought}\n</think>\n\n" if thought else "") + text + ("\n" if text else "") + called
    said = [
        f"<|channel|>{channel}<|message|>{words}<|end|>"
        for channel, words in (("analysis", thought), ("commentary", text))
        if words
    ]
    return "<|start|>assistant".join([*said, called.removeprefix("<|start|>assistant")])


def _open(written: Written, *, stops: tuple[str, ...] = ()) -> ChatAnswerReader:
    is_harmony = written.dialect.name == "harmony"
    style = find_thought_style("</think>")
    assert style is not None
    return ChatAnswerReader(
        Detokenizer(BYTES),
        BYTES.__getitem__,
        splitter=HarmonySplitter(is_thinking=False, keeps_calls=True)
        if is_harmony
        else style.splitter("", has_tools=True),
        calls=CallReader(written.dialect.open(TOOLS)),
        stop_strings=stops,
    )


def _read(written: Written, raw: bytes, cuts: list[int], *, stops: tuple[str, ...] = ()) -> AnswerPiece:
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    return read(_open(written, stops=stops), (raw[start:end] for start, end in pairwise((*places, len(raw)))))


@_EVERY
@given(data=st.data())
@_CASES
def test_a_streamed_answer_is_the_whole_one_and_both_are_what_was_meant(written: Written, data: st.DataObject) -> None:
    answer = data.draw(answers(written))
    whole = _read(written, answer.raw, [])
    byte_by_byte = _read(written, answer.raw, list(range(len(answer.raw))))
    assert said(byte_by_byte) == said(whole)
    cuts = data.draw(st.lists(st.integers(0, len(answer.raw)), max_size=6))
    assert said(_read(written, answer.raw, cuts)) == said(whole)
    assert whole.reasoning == answer.thought
    assert whole.text.strip() == answer.text.strip()
    assert [call.name for call in whole.tool_calls] == [name for name, _ in answer.calls]


@_EVERY
@given(data=st.data())
@_CASES
def test_an_answer_that_breaks_off_anywhere_shows_what_came_and_no_half_character(
    written: Written, data: st.DataObject
) -> None:
    answer = data.draw(answers(written))
    raw = answer.raw[: data.draw(st.integers(0, len(answer.raw)))]
    broken = _read(written, raw, list(range(len(raw))))
    assert said(_read(written, raw, [])) == said(broken)
    written_text = answer.raw.decode()
    assert written_text[written_text.index(answer.thought) :].startswith(broken.reasoning)
    names = [call.name for call in broken.tool_calls]
    assert names == [name for name, _ in answer.calls[: len(names)]]
    if names and len(names) == len(answer.calls):
        assert broken.text.strip() == answer.text.strip()
    # Harmony's frames are tokens, which come whole: half of one behind a message is text.
    assert names or broken.text in written_text or written.dialect.name == "harmony"


@_EVERY
@given(data=st.data())
@_CASES
def test_no_part_of_a_stop_string_shows(written: Written, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(HARD_TEXT, min_size=1, max_size=6)))
    text = f"a{text}z"
    start = data.draw(st.integers(1, len(text) - 1))
    stop = text[start : data.draw(st.integers(start + 1, len(text)))]
    raw = _write(written, "", text, []).encode()
    shown = _read(written, raw, list(range(len(raw))), stops=(stop,)).text
    assert shown == text[: text.index(stop)]
    assert _read(written, raw, [], stops=(stop,)).text == shown
