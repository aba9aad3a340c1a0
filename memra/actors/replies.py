"""The open answers: where a step's events are sorted to the requests that wait for them.

The worker's events of one step arrive in one call and wake each reader at most once; a reader that is slower than the
model finds everything that happened since in one piece. What waits is bounded by the tokens that a request may
generate. No text and no actors here. Trio thread only.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import trio

from memra.errors import RequestError
from memra.messages.replies import ReplyProgress
from memra.messages.work import PromptStarted, StepFinished, TokensGenerated, WorkEvent
from memra.types import RequestId


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event and when it happened.

    Attributes:
        at_ns: on the clock of `time.monotonic_ns()`; the step's begin for a prompt's start, its end otherwise.
    """

    event: WorkEvent
    at_ns: int


class ReplyStream:
    """The events of one request; one task reads it."""

    def __init__(self) -> None:
        self._pending: list[Arrival] = []
        self._arrived = trio.Event()
        self._error: RequestError | None = None
        self._tell_of_cut: Callable[[RequestError], None] | None = None
        self._last_event: WorkEvent | None = None

    @property
    def progress(self) -> ReplyProgress:
        """How far the answer is, read or not."""
        match self._last_event:
            case None:
                return ReplyProgress()
            case TokensGenerated(num_generated=num_generated):
                return ReplyProgress(is_started=True, completion_tokens=num_generated)
            case _:
                return ReplyProgress(is_started=True)

    def when_cut(self, tell: Callable[[RequestError], None]) -> None:
        """Have somebody told of a cut, because the request waits for something else before its first event."""
        self._tell_of_cut = tell

    def add(self, arrival: Arrival) -> None:
        """Take one more event."""
        self._last_event = arrival.event
        self._pending.append(arrival)
        self._arrived.set()

    def cut(self, error: RequestError) -> None:
        """End the stream: once the pending events are read, the reader gets this error. The first cut counts."""
        self._error = self._error or error
        self._arrived.set()
        if self._tell_of_cut is not None:
            self._tell_of_cut(error)

    def nudge(self) -> None:
        """Wake the reader from `wait`."""
        self._arrived.set()

    async def wait(self) -> None:
        """Wait for a nudge; for the reader of a request that the worker does not know, so that no event can come.

        Raises:
            RequestError: the stream was cut.
        """
        await self._arrived.wait()
        if self._error is not None:
            raise self._error
        self._arrived = trio.Event()

    async def take(self) -> list[Arrival]:
        """Wait for events and take all that are there; at least one. Always a checkpoint.

        Raises:
            RequestError: the stream was cut.
        """
        await self._arrived.wait()  # trio's events are checkpoints also when they are set
        if not self._pending and self._error is not None:
            raise self._error
        return self.take_pending()

    def take_pending(self) -> list[Arrival]:
        """Take the events that are there, maybe none, without waiting."""
        taken, self._pending = self._pending, []
        if self._error is None:
            self._arrived = trio.Event()
        return taken


class ReplyTable:
    """The streams of all requests that are in the house."""

    def __init__(self) -> None:
        self._streams: dict[RequestId, ReplyStream] = {}
        self._emptied = trio.Event()

    @property
    def num_open(self) -> int:
        """Requests in the house."""
        return len(self._streams)

    def open(self, request_id: RequestId) -> ReplyStream:
        """Begin to collect a request's events.

        Raises:
            ValueError: the id is in use.
        """
        if request_id in self._streams:
            raise ValueError(f"request id {request_id!r} is in use")
        stream = self._streams[request_id] = ReplyStream()
        return stream

    def close(self, request_id: RequestId) -> None:
        """Forget a request; unknown ids are ignored, and so are its later events."""
        self._streams.pop(request_id, None)
        if not self._streams:
            emptied, self._emptied = self._emptied, trio.Event()
            emptied.set()

    def progress(self) -> dict[RequestId, ReplyProgress]:
        """Return how far every answer is."""
        return {request_id: stream.progress for request_id, stream in self._streams.items()}

    def deliver(self, step: StepFinished) -> None:
        """Hand one step's events to their readers."""
        ended_ns = time.monotonic_ns()
        started_ns = ended_ns - round(step.step_s * 1e9)
        for event in step.events:
            stream = self._streams.get(event.request_id)
            if stream is not None:
                stream.add(Arrival(event, started_ns if isinstance(event, PromptStarted) else ended_ns))

    def cut(self, request_id: RequestId, error: RequestError) -> bool:
        """End a request's stream with an error; false when there is none."""
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.cut(error)
        return stream is not None

    def cut_all(self, error: RequestError) -> None:
        """End every stream with an error."""
        for stream in self._streams.values():
            stream.cut(error)

    async def wait_until_none(self) -> None:
        """Wait until no request is in the house, if only for a moment."""
        while self._streams:
            await self._emptied.wait()
