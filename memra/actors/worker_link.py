"""The way to the worker that lives now: stays the same while workers come and go.

Lifecycle attaches each new worker; the requests' tasks submit and abort through it. It holds no queue: without a worker
a submit is refused. Trio thread only.
"""

from typing import cast

import trio
from pykka import ActorDeadError

from memra.actors.base import Ref, stop_actor, tell_if_alive
from memra.actors.future import TrioFuture
from memra.errors import OverloadedError
from memra.messages.work import AbortRequest, ReportWork, SubmitPrompt, WorkReported
from memra.types import RequestId


class WorkerLink:
    """One for the life of the server."""

    def __init__(self) -> None:
        self._worker: Ref | None = None
        self._is_open = False
        self._report: TrioFuture | None = None
        self._last_report = WorkReported()

    def attach(self, worker: Ref) -> None:
        """Name a worker that has begun to load."""
        self._worker = worker
        self._report = None

    def open(self) -> None:
        """Let prompts through: the worker is ready."""
        self._is_open = True

    def close(self) -> None:
        """Refuse prompts: the worker is dead."""
        self._is_open = False

    def submit(self, prompt: SubmitPrompt) -> None:
        """Hand a prompt to the worker, or raise.

        Raises:
            OverloadedError: there is no worker at the moment.
        """
        if self._worker is None or not self._is_open or not tell_if_alive(self._worker, prompt):
            raise OverloadedError("The model worker is restarting; try again shortly.", retry_after_s=2.0)

    def abort(self, request_id: RequestId) -> None:
        """Free a request's row and pages at the worker's next step."""
        if self._worker is not None:
            tell_if_alive(self._worker, AbortRequest(request_id))

    async def report(self, *, within_s: float) -> WorkReported:
        """Return the worker's counters, or the last known ones when it does not answer in time.

        At most one question waits in the worker's mailbox, however often this is called.
        """
        if self._report is None and self._worker is not None and self._is_open:
            self._report = cast("TrioFuture", self._worker.ask(ReportWork(), block=False))
        if self._report is not None:
            await self._wait_for(self._report, within_s=within_s)
        return self._last_report

    async def stop(self, *, within_s: float) -> bool:
        """Stop the worker, freeing its engine; false when it did not in time."""
        self._is_open = False
        return self._worker is None or await stop_actor(self._worker, within_s=within_s)

    async def _wait_for(self, report: TrioFuture, *, within_s: float) -> None:
        try:
            with trio.move_on_after(within_s):
                self._last_report = await report
        except ActorDeadError:
            pass  # the last known report stands
        if report.is_done and self._report is report:
            self._report = None
