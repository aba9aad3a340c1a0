"""An answer's items: what opens, grows and closes them, in which order."""

import pytest

from memra.errors import IntegrityError
from memra.http.wire.answer_items import AnswerItems, ItemKind
from memra.messages.generation import ReplyDelta, ToolCallDelta
from memra.types import StopCause

BEGIN = ToolCallDelta(0, "", "call_1", "f")


def read(*deltas: ReplyDelta, stop: StopCause = StopCause.END_OF_SEQUENCE) -> tuple[list[str], list[tuple]]:
    items = AnswerItems()
    steps = [f"{step.name} {item.index} {piece}".strip() for delta in deltas for step, item, piece in items.take(delta)]
    steps += [f"{step.name} {item.index}" for step, item, _ in items.end(stop)]
    return steps, [(item.kind, item.content) for item in items.items]


def test_an_item_closes_before_the_next_one_opens():
    steps, items = read(ReplyDelta("", reasoning="hm"), ReplyDelta("a"), ReplyDelta("b"))
    assert steps == ["OPENED 0", "GREW 0 hm", "CLOSED 0", "OPENED 1", "GREW 1 a", "GREW 1 b", "CLOSED 1"]
    assert items == [(ItemKind.REASONING, "hm"), (ItemKind.TEXT, "ab")]


def test_a_joined_delta_is_taken_in_the_order_thoughts_open_call_text_new_calls():
    again = ToolCallDelta(0, "}")
    new = (ToolCallDelta(1, "", "call_2", "g"), ToolCallDelta(1, "{}"))
    _, items = read(
        ReplyDelta("say", tool_calls=(BEGIN, ToolCallDelta(0, "{")), reasoning="hm"),
        ReplyDelta(" so", tool_calls=(again, *new)),
    )
    kinds = [ItemKind.REASONING, ItemKind.TEXT, ItemKind.CALL, ItemKind.TEXT, ItemKind.CALL]
    assert items == list(zip(kinds, ["hm", "say", "{}", " so", "{}"], strict=True))


def test_blank_text_between_calls_opens_nothing():
    second = ToolCallDelta(1, "{}", "call_2", "g")
    _, items = read(
        ReplyDelta("\n", tool_calls=(BEGIN,)),
        ReplyDelta("\n"),
        ReplyDelta("\n", tool_calls=(second,)),
        ReplyDelta("\n"),
    )
    assert [kind for kind, _ in items] == [ItemKind.CALL, ItemKind.CALL]


def test_blank_text_stays_before_the_words_that_follow():
    _, items = read(ReplyDelta("\n"), ReplyDelta(" "), ReplyDelta("a"), ReplyDelta("\n"))
    assert items == [(ItemKind.TEXT, "\n a\n")]


def test_an_answer_of_blank_text_alone_is_kept():
    assert read(ReplyDelta("\n"))[1] == [(ItemKind.TEXT, "\n")]


def test_an_answer_of_nothing_has_no_items():
    assert read(ReplyDelta("", (1,))) == ([], [])


def test_only_the_last_item_of_an_answer_that_was_cut_is_cut():
    items = AnswerItems()
    for delta in (ReplyDelta("a"), ReplyDelta("", tool_calls=(BEGIN,))):
        list(items.take(delta))
    list(items.end(StopCause.MAX_TOKENS))
    assert [item.is_cut for item in items.items] == [False, True]


def test_more_of_a_call_that_ended_is_a_fault():
    with pytest.raises(IntegrityError):
        read(ReplyDelta("", tool_calls=(BEGIN,)), ReplyDelta("a"), ReplyDelta("", tool_calls=(ToolCallDelta(0, "{}"),)))
