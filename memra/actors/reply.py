"""One answer while it is generated: the worker's events become the parts that the front door is told.

Used by the request's own task, which is the only one that waits here. Tokens become text with the request's own reader;
a stop string that it finds ends the answer, and the worker is told. Knows nothing of admission or HTTP.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import trio

from memra.actors.logprob_queue import LogprobQueue
from memra.actors.replies import Arrival, ReplyStream
from memra.actors.worker_failures import error_of
from memra.errors import DeadlineExceededError, RequestError
from memra.gate.context_budget import TokenBudget
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import (
    ReplyDelta,
    ReplyFinished,
    ReplyPart,
    ReplyStarted,
    TokenLogprob,
    Usage,
    join_calls,
)
from memra.messages.prompt import AnswerPiece, PromptRendered
from memra.messages.work import PromptScored, PromptStarted, RequestFailed, TokensGenerated
from memra.types import StopCause, TokenId

_COMPLETE = frozenset({StopCause.END_OF_SEQUENCE, StopCause.STOP_TOKEN, StopCause.STOP_STRING})
"""Ends that the model or the client's own words brought about; an answer that was cut may lack a call."""


@dataclass(slots=True)
class StageTimes:
    """When a request passed from stage to stage, on the clock of `time.monotonic_ns()`; None until it did."""

    admitted_ns: int
    submitted_ns: int | None = None
    started_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a request must have come so far.

    Attributes:
        at: on trio's clock.
        is_whole: it bounds the whole answer, and otherwise the first token alone.
    """

    at: float
    is_whole: bool

    def error(self) -> DeadlineExceededError:
        """Return what a client is told whose answer had not begun."""
        return DeadlineExceededError(
            "The deadline passed before the first token; raise `timeout_ms` or try again later."
        )


_NO_DEADLINE = Deadline(math.inf, is_whole=False)


class WorkerReply:
    """The parts of one answer, in order; iterate once."""

    def __init__(  # noqa: PLR0913  (each is another part of what is known of the request)
        self,
        stream: ReplyStream,
        rendered: PromptRendered,
        *,
        admitted: RequestAdmitted,
        budget: TokenBudget,
        times: StageTimes,
        abort: Callable[[], object],
        deadline: Deadline = _NO_DEADLINE,
    ) -> None:
        """Take what is known of the request.

        Args:
            stream: where the worker's events arrive.
            rendered: the prompt, and the reader of this answer.
            admitted: the slot that is held.
            budget: tells whether the context or the client bounds the answer.
            times: written here from the start of the prompt on.
            abort: tells the worker to let go of the request; called once, when a stop string is found before its end,
                or the deadline passes.
            deadline: ends the answer.
        """
        self._stream = stream
        self._prompt = rendered
        self._admitted = admitted
        self._budget = budget
        self._times = times
        self._abort = abort
        self._deadline = deadline
        self._parts: deque[ReplyPart] = deque()
        self._pieces: list[AnswerPiece] = []
        self._token_ids: list[TokenId] = []
        self._logprobs = LogprobQueue(rendered.reader, echo=rendered.echo)
        self._num_generated = 0
        self._num_reasoning = 0
        self._num_cached = 0
        self._stop: StopCause | None = None
        self._error: RequestError | None = None
        self._is_worker_done = False

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that this answer holds."""
        return self._admitted

    @property
    def stop(self) -> StopCause | None:
        """Why the answer ended; None while it has not, and when it failed."""
        return self._stop

    @property
    def error(self) -> RequestError | None:
        """Why the answer failed, or None."""
        return self._error

    @property
    def is_worker_done(self) -> bool:
        """Whether the worker has let go of the request or was told to, so that nothing is left to abort."""
        return self._is_worker_done

    @property
    def usage(self) -> Usage | None:
        """What was spent so far; None while the worker has not taken the prompt."""
        times = self._times
        if times.started_ns is None:
            return None
        return Usage(
            prompt_tokens=len(self._prompt.prompt_ids),
            completion_tokens=self._num_generated,
            cached_tokens=self._num_cached,
            elapsed_s=((times.last_token_ns or time.monotonic_ns()) - times.admitted_ns) / 1e9,
            reasoning_tokens=self._num_reasoning,
        )

    def count_unread(self) -> None:
        """Count what arrived of an unfinished answer and was not read: it was generated for the client all the same."""
        if self._stop is not None or self._error is not None:
            return
        for arrival in self._stream.take_pending():
            match arrival.event:
                case PromptStarted(num_cached_tokens=num_cached_tokens):
                    self._start(num_cached_tokens, arrival.at_ns)
                case TokensGenerated(num_generated=num_generated):
                    self._start(0, arrival.at_ns)
                    self._num_generated = num_generated

    def __aiter__(self) -> Self:
        """Iterate over the parts."""
        return self

    async def __anext__(self) -> ReplyPart:
        """Return the next part; waits for the worker.

        Raises:
            RequestError: the answer cannot go on.
            StopAsyncIteration: it is complete.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._stop is not None:
                raise StopAsyncIteration
            await self._take_more()
        return self._parts.popleft()

    async def _take_more(self) -> None:
        try:
            if self._is_bound:
                await self._take_in_time()
            else:  # every token but the first of a stream: a scope would cost a sixth of all that a token costs
                self._digest(await self._stream.take())
        except RequestError as error:
            self._error = error
            raise

    async def _take_in_time(self) -> None:
        with trio.move_on_at(self._deadline.at):
            self._digest(await self._stream.take())
            return
        self._digest(self._stream.take_pending(), is_late=True)

    @property
    def _is_bound(self) -> bool:
        """Whether the deadline still means anything to the answer."""
        return self._deadline.is_whole or not self._num_generated

    def _digest(self, arrivals: list[Arrival], *, is_late: bool = False) -> None:
        """Turn everything that has arrived into as few parts as possible.

        Args:
            arrivals: in order.
            is_late: the deadline has passed.
        """
        for arrival in arrivals:
            match arrival.event:
                case PromptStarted(num_cached_tokens=num_cached_tokens):
                    self._start(num_cached_tokens, arrival.at_ns)
                case PromptScored(logprobs=logprobs):
                    self._logprobs.note_prompt(logprobs)
                case TokensGenerated():
                    self._read(arrival.event, arrival.at_ns)
                case RequestFailed():
                    self._fail(arrival.event)
            if self._stop is not None or self._error is not None:
                break
        if is_late and self._stop is None and self._error is None and self._is_bound:
            self._end_late()
        if self._pieces or self._token_ids or self._logprobs.has_ready:
            *before, last = _in_order(self._pieces)
            self._parts += [_delta(pieces) for pieces in before]
            self._parts.append(_delta(last, self._token_ids, self._logprobs.take()))
            self._pieces, self._token_ids = [], []
        if self._stop is not None and (usage := self.usage) is not None:
            self._parts.append(ReplyFinished(self._stop, usage, stop_string=self._prompt.reader.stop_string))

    def _start(self, num_cached_tokens: int, at_ns: int) -> None:
        # A sequence that was preempted starts again, but the client is told once.
        if self._times.started_ns is None:
            self._times.started_ns = max(at_ns, self._times.submitted_ns or at_ns)
            self._num_cached = num_cached_tokens
            self._parts.append(ReplyStarted(len(self._prompt.prompt_ids), num_cached_tokens))
            if self._prompt.echo:
                self._parts.append(ReplyDelta(self._prompt.echo))

    def _read(self, event: TokensGenerated, at_ns: int) -> None:
        self._start(0, at_ns)
        times = self._times
        if event.token_ids and times.first_token_ns is None:
            times.first_token_ns = at_ns
        times.last_token_ns = at_ns
        self._is_worker_done = event.stop is not None
        reader = self._prompt.reader
        # One by one, so that the count and the ids end with the very token that completed a stop string.
        for index, token_id in enumerate(event.token_ids):
            was_thinking = reader.is_thinking
            piece = reader.read((token_id,))
            self._num_generated += 1
            self._num_reasoning += was_thinking or reader.is_thinking
            self._token_ids.append(token_id)
            if piece.text or piece.reasoning or piece.tool_calls:
                self._pieces.append(piece)
            if event.logprobs:
                self._logprobs.note(event.logprobs[index])
            if reader.is_stopped:
                self._stop_at_reader()
                return
        self._num_generated = event.num_generated
        if event.stop is not None:
            self._finish(event.stop)

    def _stop_at_reader(self) -> None:
        self._stop = self._own_end(StopCause.STOP_STRING)
        self._logprobs.end()
        self._let_go()

    def _end_late(self) -> None:
        """End an answer at its deadline: with what there is, or with an error where there is nothing."""
        if self._num_generated:
            self._finish(StopCause.DEADLINE)
        else:
            self._error = self._deadline.error()
        self._let_go()

    def _let_go(self) -> None:
        """Tell the worker at once: the client may take its time with the last words, and the row is somebody else's."""
        if not self._is_worker_done:
            self._is_worker_done = True
            self._abort()

    def _finish(self, stop: StopCause) -> None:
        held_back = self._prompt.reader.finish()
        if held_back.text or held_back.reasoning or held_back.tool_calls:
            self._pieces.append(held_back)
        self._logprobs.end()
        if self._prompt.reader.is_stopped:
            self._stop = self._own_end(StopCause.STOP_STRING)
            return
        is_cut_by_context = stop is StopCause.MAX_TOKENS and self._budget.is_context_bound
        self._stop = StopCause.CONTEXT_FULL if is_cut_by_context else self._own_end(stop)

    def _own_end(self, stop: StopCause) -> StopCause:
        """Return the cause, or that tools are called where the answer was complete and calls some."""
        is_complete = stop in _COMPLETE and self._prompt.reader.has_calls
        return StopCause.TOOL_CALLS if is_complete else stop

    def _fail(self, event: RequestFailed) -> None:
        self._is_worker_done = True
        self._error = error_of(event)


def _in_order(pieces: list[AnswerPiece]) -> list[list[AnswerPiece]]:
    """Part what cannot be told in one delta: text or thoughts that follow a call. At least one group, maybe empty."""
    if len(pieces) <= 1:
        return [pieces]
    groups: list[list[AnswerPiece]] = [[]]
    for piece in pieces:
        if (piece.text or piece.reasoning) and any(before.tool_calls for before in groups[-1]):
            groups.append([])
        groups[-1].append(piece)
    return groups


def _delta(
    pieces: Sequence[AnswerPiece], token_ids: Sequence[TokenId] = (), logprobs: tuple[TokenLogprob, ...] = ()
) -> ReplyDelta:
    """Join pieces; a stream that keeps up has one at a time, whose words are joined already."""
    if len(pieces) == 1:
        (piece,) = pieces
        text, reasoning, calls = piece.text, piece.reasoning, piece.tool_calls
    else:
        text = "".join([piece.text for piece in pieces])
        reasoning = "".join([piece.reasoning for piece in pieces])
        calls = tuple([delta for piece in pieces for delta in piece.tool_calls])
    return ReplyDelta(text, tuple(token_ids), reasoning, join_calls(calls) if calls else (), logprobs)
