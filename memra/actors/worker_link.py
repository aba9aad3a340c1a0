"""The way to the worker that lives now: stays the same while workers come and go, and keeps their queue.

Lifecycle attaches each new worker; the requests' tasks submit and abort through it, and the worker's events pass
through it on their way to the readers. A prompt is kept until its first token is out: when the worker dies before, the
next one gets it again, for an answer that nobody has seen any part of can be begun anew. Prompts that come while there
is no worker wait here too. Trio thread only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, cast

import trio
from pykka import ActorDeadError

from memra.actors.base import Ref, ask, stop_actor, tell_if_alive
from memra.actors.future import TrioFuture
from memra.errors import OverloadedError
from memra.messages.work import (
    AbortRequest,
    PromptStarted,
    ReportWork,
    RequestFailed,
    StepFinished,
    Submission,
    WorkEvent,
    WorkReported,
)
from memra.types import RequestId

MAX_WAITING = 256
"""Prompts that wait for a new worker; as many as the default lanes let into the house."""
_MAX_RUNS = 2
"""How often a prompt is handed to a worker: one that kills two of them is not tried on a third."""


class _Door(Enum):
    """Whether there is a worker."""

    OPEN = auto()
    WAITING = auto()
    SHUT = auto()


@dataclass(slots=True)
class _Kept:
    """A prompt without a token so far."""

    prompt: Submission
    num_runs: int = 0
    is_waiting: bool = True


class WorkerLink:
    """One for the life of the server."""

    def __init__(self, deliver: Callable[[StepFinished], None], *, max_waiting: int = MAX_WAITING) -> None:
        """Start without a worker.

        Args:
            deliver: hands events to the requests' readers.
            max_waiting: prompts that may wait for a worker; more are refused.
        """
        self._deliver = deliver
        self._max_waiting = max_waiting
        self._worker: Ref | None = None
        self._door = _Door.WAITING
        self._kept: dict[RequestId, _Kept] = {}
        self._report: TrioFuture | None = None
        self._last_report = WorkReported()

    @property
    def is_open(self) -> bool:
        """Whether a worker takes prompts."""
        return self._door is _Door.OPEN

    @property
    def num_waiting(self) -> int:
        """Prompts that wait for a worker."""
        return sum(kept.is_waiting for kept in self._kept.values())

    def attach(self, worker: Ref) -> None:
        """Name a worker that has begun to load."""
        self._worker = worker
        self._report = None

    def open(self) -> None:
        """The worker is ready: hand it what has waited, in the order of arrival, and let prompts through."""
        self._door = _Door.OPEN
        for kept in self._kept.values():
            if kept.is_waiting:
                self._hand_over(kept)

    def close(self) -> None:
        """The worker is dead, and another will come: keep what it has not begun to answer, and what arrives."""
        self._door = _Door.WAITING
        for kept in list(self._kept.values()):
            kept.is_waiting = True
            if kept.num_runs >= _MAX_RUNS:
                self._fail([kept.prompt.request_id], "the request was being worked on when two workers died")

    def give_up(self, detail: str) -> None:
        """No worker will come: fail what is kept, and refuse what arrives."""
        self._door = _Door.SHUT
        self._fail(list(self._kept), detail)

    def submit(self, prompt: Submission) -> None:
        """Hand a prompt to the worker, or keep it until there is one.

        Raises:
            OverloadedError: no worker will come, or too many prompts wait for it.
        """
        if self._door is _Door.SHUT or (self._door is _Door.WAITING and self.num_waiting >= self._max_waiting):
            raise OverloadedError("The model worker is restarting; try again shortly.", retry_after_s=2.0)
        kept = self._kept[prompt.request_id] = _Kept(prompt)
        if self._door is _Door.OPEN:
            self._hand_over(kept)

    def abort(self, request_id: RequestId) -> None:
        """Free a request's row and pages at the worker's next step; one that waits here is forgotten."""
        self._kept.pop(request_id, None)
        if self._worker is not None:
            tell_if_alive(self._worker, AbortRequest(request_id))

    async def ask(self, message: object) -> Any:
        """Ask the worker that lives now, ready or not; it answers between two steps.

        Raises:
            ActorDeadError: there is none, or it ended before it answered.
        """
        if self._worker is None:
            raise ActorDeadError("there is no worker")
        return await ask(self._worker, message)

    def deliver(self, step: StepFinished) -> None:
        """Pass a step's events on to their readers, but not the loss of a request that is kept."""
        if self._kept:
            events = tuple(event for event in step.events if not self._withholds(event))
            if len(events) != len(step.events):
                step = StepFinished(events, step.step_s)
        self._deliver(step)

    async def report(self, *, within_s: float) -> WorkReported:
        """Return the worker's counters, or the last known ones when it does not answer in time.

        Without a worker nothing is active, and what waits here is queued. At most one question waits in the worker's
        mailbox, however often this is called.
        """
        if self._report is None and self._worker is not None and self.is_open:
            self._report = cast("TrioFuture", self._worker.ask(ReportWork(), block=False))
        if self._report is not None:
            await self._wait_for(self._report, within_s=within_s)
        if self.is_open:
            return self._last_report
        return replace(self._last_report, num_active=0, num_queued=self.num_waiting)

    async def stop(self, *, within_s: float) -> bool:
        """Stop the worker, freeing its engine; false when it did not in time."""
        self.give_up("the server was stopped")
        return self._worker is None or await stop_actor(self._worker, within_s=within_s)

    def _hand_over(self, kept: _Kept) -> None:
        # A worker that died a moment ago takes nothing; lifecycle is about to say so, and the prompt waits on.
        if self._worker is not None and tell_if_alive(self._worker, kept.prompt):
            kept.num_runs += 1
            kept.is_waiting = False

    def _withholds(self, event: WorkEvent) -> bool:
        """Whether the reader must not see an event; forgets prompts that have got their first token or their end."""
        if event.request_id not in self._kept or isinstance(event, PromptStarted):
            return False
        if isinstance(event, RequestFailed) and event.is_worker_lost:
            return True  # `close` has seen to it, or will
        del self._kept[event.request_id]
        return False

    def _fail(self, request_ids: list[RequestId], detail: str) -> None:
        for request_id in request_ids:
            del self._kept[request_id]
        if request_ids:
            failed = tuple(RequestFailed(request_id, detail, overloaded=True) for request_id in request_ids)
            self._deliver(StepFinished(failed, step_s=0.0))

    async def _wait_for(self, report: TrioFuture, *, within_s: float) -> None:
        try:
            with trio.move_on_after(within_s):
                self._last_report = await report
        except ActorDeadError:
            pass  # the last known report stands
        if report.is_done and self._report is report:
            self._report = None
