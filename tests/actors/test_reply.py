"""How a worker's events become the parts of an answer, event by event."""

from dataclasses import replace
from typing import Any

import pytest

from memra.actors.replies import Arrival, ReplyStream
from memra.actors.reply import StageTimes, WorkerReply
from memra.errors import GrammarDeadEndError, OverloadedError
from memra.gate.context_budget import TokenBudget
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import (
    ReplyDelta,
    ReplyFinished,
    ReplyPart,
    ReplyStarted,
    TokenLogprob,
    ToolCallDelta,
)
from memra.messages.prompt import AnswerPiece, PromptRendered
from memra.messages.work import PromptScored, PromptStarted, RequestFailed, TokensGenerated
from memra.types import Lane, RequestId, StopCause

R = RequestId("r")


class Desk:
    """One reply, and a hand that puts events into it."""

    def __init__(self, reader: Any, *, is_context_bound: bool = False, echo: str = "") -> None:
        self._stream = ReplyStream()
        self.num_aborts = 0
        self.times = StageTimes(admitted_ns=1_000, submitted_ns=2_000)
        self.reply = WorkerReply(
            self._stream,
            PromptRendered((1, 2, 3), frozenset({0}), 100, reader, echo=echo),
            admitted=RequestAdmitted(R, "default", Lane.JUDGE, 4, 3),
            budget=TokenBudget(10, is_context_bound),
            times=self.times,
            abort=self._count_abort,
        )

    def put(self, *events: Any, at_ns: int = 5_000) -> None:
        for event in events:
            self._stream.add(Arrival(event, at_ns))

    def _count_abort(self) -> None:
        self.num_aborts += 1

    async def read(self) -> list[ReplyPart]:
        return [part async for part in self.reply]


def tokens(text: str, total: int, stop: StopCause | None = None) -> TokensGenerated:
    return TokensGenerated(R, tuple(map(ord, text)), total, stop)


async def test_a_stop_string_in_the_middle_of_many_tokens_ends_ids_and_count_with_it(kit: Any):
    desk = Desk(kit.Reader(("cd",)))
    desk.put(PromptStarted(R, 1), tokens("abcdefgh", 8, StopCause.MAX_TOKENS))
    started, delta, finished = await desk.read()
    assert started == ReplyStarted(3, 1)
    assert delta == ReplyDelta("ab", tuple(map(ord, "abcd")))
    assert isinstance(finished, ReplyFinished)
    assert finished.stop is StopCause.STOP_STRING
    assert finished.usage.completion_tokens == 4
    assert desk.reply.is_worker_done
    assert desk.num_aborts == 0, "the worker had ended it already"


async def test_a_stop_string_is_told_to_the_worker_before_the_client_reads_on(kit: Any):
    desk = Desk(kit.Reader(("b",)))
    desk.put(PromptStarted(R, 0), tokens("ab", 2), tokens("cd", 4))
    assert await anext(desk.reply) == ReplyStarted(3, 0)
    assert desk.num_aborts == 1
    assert desk.reply.is_worker_done
    assert (await desk.read())[-1].stop is StopCause.STOP_STRING  # type: ignore[union-attr]
    assert desk.num_aborts == 1


async def test_a_stop_string_that_the_last_characters_complete_still_counts(kit: Any):
    class LateReader(kit.Reader):
        def finish(self) -> AnswerPiece:
            self.is_stopped = True
            return AnswerPiece("!")

    desk = Desk(LateReader(()))
    desk.put(PromptStarted(R, 0), tokens("a", 1, StopCause.MAX_TOKENS))
    _, delta, finished = await desk.read()
    assert delta == ReplyDelta("a!", (ord("a"),))
    assert finished.stop is StopCause.STOP_STRING  # type: ignore[union-attr]


async def test_tokens_inside_a_character_are_told_without_text(kit: Any):
    desk = Desk(kit.Reader(("xyz",)))
    desk.put(PromptStarted(R, 0), tokens("a", 1))
    assert await anext(desk.reply) == ReplyStarted(3, 0)
    assert await anext(desk.reply) == ReplyDelta("", (ord("a"),))
    desk.put(tokens("b", 2, StopCause.STOP_TOKEN))
    assert await anext(desk.reply) == ReplyDelta("ab", (ord("b"),))


async def test_an_answer_of_no_tokens_still_starts_and_finishes(kit: Any):
    desk = Desk(kit.Reader(()))
    desk.put(TokensGenerated(R, (), 0, StopCause.MAX_TOKENS))
    started, finished = await desk.read()
    assert started == ReplyStarted(3, 0)
    assert finished.usage.completion_tokens == 0  # type: ignore[union-attr]


async def test_a_sequence_that_starts_twice_is_announced_once(kit: Any):
    desk = Desk(kit.Reader(()))
    desk.put(PromptStarted(R, 2), tokens("a", 1), PromptStarted(R, 3), tokens("b", 2, StopCause.MAX_TOKENS))
    started, delta, finished = await desk.read()
    assert started == ReplyStarted(3, 2)
    assert delta == ReplyDelta("ab", (97, 98))
    assert finished.usage.cached_tokens == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("is_bound", "stop", "told"),
    [
        (True, StopCause.MAX_TOKENS, StopCause.CONTEXT_FULL),
        (False, StopCause.MAX_TOKENS, StopCause.MAX_TOKENS),
        (True, StopCause.END_OF_SEQUENCE, StopCause.END_OF_SEQUENCE),
    ],
)
async def test_the_context_is_named_when_it_was_the_bound(kit: Any, is_bound: Any, stop: StopCause, told: StopCause):
    desk = Desk(kit.Reader(()), is_context_bound=is_bound)
    desk.put(tokens("a", 1, stop))
    assert (await desk.read())[-1].stop is told  # type: ignore[union-attr]


async def test_what_came_before_a_failure_is_told_first(kit: Any):
    desk = Desk(kit.Reader(()))
    desk.put(PromptStarted(R, 0), tokens("ab", 2), RequestFailed(R, "lost", overloaded=True), tokens("c", 3))
    assert await anext(desk.reply) == ReplyStarted(3, 0)
    assert await anext(desk.reply) == ReplyDelta("ab", (97, 98))
    with pytest.raises(OverloadedError):
        await anext(desk.reply)
    assert desk.reply.error is not None
    assert desk.reply.stop is None
    assert desk.reply.usage is not None
    assert desk.reply.usage.completion_tokens == 2


async def test_the_time_is_counted_from_admission_to_the_last_token(kit: Any):
    desk = Desk(kit.Reader(()))
    assert desk.reply.usage is None
    desk.put(PromptStarted(R, 0), at_ns=1_500)
    desk.put(tokens("a", 1), at_ns=1_000_001_000)
    desk.put(tokens("b", 2, StopCause.MAX_TOKENS), at_ns=2_000_001_000)
    finished = (await desk.read())[-1]
    assert finished.usage.elapsed_s == 2.0  # type: ignore[union-attr]
    assert desk.times.started_ns == 2_000, "a step that began before the prompt came does not shorten its wait"
    assert desk.times.first_token_ns == 1_000_001_000


def likely(text: str, total: int, stop: StopCause | None = None) -> TokensGenerated:
    entries = tuple(TokenLogprob(ord(char), -1.0, ((ord(char), -1.0), (ord("?"), -2.0))) for char in text)
    return replace(tokens(text, total, stop), logprobs=entries)


def told(parts: list[ReplyPart]) -> list[tuple[str, bytes]]:
    """Text and tokens of each delta."""
    deltas = [part for part in parts if isinstance(part, ReplyDelta)]
    return [(delta.text, b"".join(entry.text_bytes for entry in delta.logprobs)) for delta in deltas]


async def test_log_probabilities_come_with_the_text_of_their_tokens(kit: Any):
    desk = Desk(kit.Reader(("cdx",)))
    desk.put(PromptStarted(R, 0), likely("a", 1))
    parts = [await anext(desk.reply), await anext(desk.reply)]
    for char, total in (("b", 2), ("c", 3), ("d", 4)):
        desk.put(likely(char, total))
        parts.append(await anext(desk.reply))
    desk.put(likely("e", 5, StopCause.MAX_TOKENS))
    parts += await desk.read()
    assert told(parts) == [("", b""), ("", b""), ("a", b"a"), ("b", b"b"), ("cde", b"cde")]
    assert parts[-2].logprobs[0].top_bytes == (b"c", b"?")  # type: ignore[union-attr]


async def test_the_tokens_of_a_stop_string_have_no_log_probabilities(kit: Any):
    desk = Desk(kit.Reader(("cd",)))
    desk.put(PromptStarted(R, 0), likely("a", 1), likely("b", 2), likely("c", 3), likely("d", 4))
    assert told(await desk.read()) == [("ab", b"ab")]


async def test_an_echo_comes_before_the_answer(kit: Any):
    desk = Desk(kit.Reader(()), echo="what?")
    desk.put(PromptStarted(R, 0), tokens("a", 1, StopCause.MAX_TOKENS))
    started, echo, delta, _ = await desk.read()
    assert started == ReplyStarted(3, 0)
    assert (echo, delta) == (ReplyDelta("what?"), ReplyDelta("a", (97,)))


class PartsReader:
    """Thoughts are lower case, calls are digits; a full stop completes a call and `!` ends the answer."""

    def __init__(self) -> None:
        self.has_calls = False
        self.is_stopped = False
        self.num_read_bytes = 0
        self.num_held_bytes = 0
        self.stop_string = None
        self.is_thinking = False

    def read(self, token_ids: tuple[int, ...]) -> AnswerPiece:
        (char,) = map(chr, token_ids)
        self.is_thinking = char.islower()
        self.has_calls = self.has_calls or char == "."
        self.is_stopped = char == "!"
        if char.isdigit():
            return AnswerPiece(tool_calls=(ToolCallDelta(0, char),))
        return AnswerPiece(reasoning=char) if char.islower() else AnswerPiece(char.strip(".!"))

    def finish(self) -> AnswerPiece:
        return AnswerPiece(tool_calls=(ToolCallDelta(1, "{}", "call_b", "tell"),))


async def test_thoughts_and_calls_of_one_arrival_are_told_in_one_delta():
    desk = Desk(PartsReader())
    desk.put(PromptStarted(R, 0), tokens("abYES12.", 8, StopCause.END_OF_SEQUENCE))
    _, delta, finished = await desk.read()
    calls = (ToolCallDelta(0, "12"), ToolCallDelta(1, "{}", "call_b", "tell"))
    assert delta == ReplyDelta("YES", tuple(map(ord, "abYES12.")), "ab", calls)
    assert finished.stop is StopCause.TOOL_CALLS  # type: ignore[union-attr]


async def test_the_tokens_of_thoughts_are_counted_with_the_one_that_ends_them():
    desk = Desk(PartsReader())
    desk.put(PromptStarted(R, 0), tokens("ab", 2), tokens("cYES", 6, StopCause.END_OF_SEQUENCE))
    finished = (await desk.read())[-1]
    assert finished.usage.reasoning_tokens == 4  # type: ignore[union-attr]


async def test_likelihoods_of_the_prompt_come_after_its_text_and_before_the_answers(kit: Any):
    desk = Desk(kit.Reader(()), echo="what?")
    scores = (TokenLogprob(ord("?"), None), *(TokenLogprob(ord(char), -1.0) for char in "what"))
    answer = replace(
        tokens("ab", 2, StopCause.MAX_TOKENS), logprobs=tuple(TokenLogprob(ord(char), -2.0) for char in "ab")
    )
    desk.put(PromptStarted(R, 0), PromptScored(R, scores[:2]), PromptScored(R, scores[2:]), answer)
    _, echo, delta, _ = await desk.read()
    assert echo == ReplyDelta("what?")
    assert delta.text == "ab"  # type: ignore[union-attr]
    told = [(entry.logprob, entry.text_bytes, entry.shown_bytes) for entry in delta.logprobs]  # type: ignore[union-attr]
    # The first token was put around the text, in which it does not stand.
    assert told[:2] == [(None, b"?", b""), (-1.0, b"w", b"w")]
    assert told[2:] == [
        *((-1.0, bytes([byte]), bytes([byte])) for byte in b"hat"),
        (-2.0, b"a", None),
        (-2.0, b"b", None),
    ]


async def test_text_after_a_call_stays_after_it():
    desk = Desk(PartsReader())
    desk.put(PromptStarted(R, 0), tokens("aX1.Yb2", 7))
    parts = [await anext(desk.reply) for _ in range(3)]
    assert parts[1] == ReplyDelta("X", (), "a", (ToolCallDelta(0, "1"),))
    assert parts[2] == ReplyDelta("Y", tuple(map(ord, "aX1.Yb2")), "b", (ToolCallDelta(0, "2"),))


@pytest.mark.parametrize(
    ("text", "stop", "told"),
    [
        ("1.", StopCause.END_OF_SEQUENCE, StopCause.TOOL_CALLS),
        ("1.", StopCause.STOP_TOKEN, StopCause.TOOL_CALLS),
        ("1.!", StopCause.MAX_TOKENS, StopCause.TOOL_CALLS),
        ("1!", StopCause.MAX_TOKENS, StopCause.STOP_STRING),
        ("1.", StopCause.MAX_TOKENS, StopCause.MAX_TOKENS),
        ("1", StopCause.END_OF_SEQUENCE, StopCause.END_OF_SEQUENCE),
    ],
)
async def test_an_answer_calls_tools_when_it_ended_by_itself_with_a_complete_call(
    text: str, stop: StopCause, told: StopCause
):
    desk = Desk(PartsReader())
    desk.put(tokens(text, len(text), stop))
    assert (await desk.read())[-1].stop is told  # type: ignore[union-attr]


async def test_a_dead_end_is_told_by_name(kit: Any):
    desk = Desk(kit.Reader(()))
    desk.put(PromptStarted(R, 0), tokens("a", 1), RequestFailed(R, "no token", is_dead_end=True))
    assert await anext(desk.reply) == ReplyStarted(3, 0)
    assert await anext(desk.reply) == ReplyDelta("a", (97,))
    with pytest.raises(GrammarDeadEndError, match="its grammar allows no token"):
        await anext(desk.reply)
