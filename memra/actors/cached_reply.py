"""The replies of requests that share answers: one that is computed for others too, and one that is there already.

Both stand in for a `WorkerReply` on the way out. They refuse to know who waits for whom: that is `shared_answers`.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

from memra.actors.reply import StageTimes, WorkerReply
from memra.actors.shared_answers import Lead
from memra.errors import RequestError
from memra.gate.response_cache import StoredAnswer
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyPart, Usage
from memra.types import CacheStatus, StopCause


class LeadingReply:
    """The parts of an answer that the worker computes, handed to its followers when the last one is read."""

    def __init__(self, reply: WorkerReply, lead: Lead) -> None:
        """Take the reply of the worker; whoever walks with it ends the lead where no last part is read."""
        self._reply = reply
        self._lead = lead
        self._deltas: list[ReplyDelta] = []

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that this answer holds."""
        return self._reply.admitted

    def __aiter__(self) -> Self:
        """Iterate over the parts."""
        return self

    async def __anext__(self) -> ReplyPart:
        """Return the next part; waits for the worker.

        Raises:
            RequestError: the answer cannot go on.
            StopAsyncIteration: it is complete.
        """
        part = await anext(self._reply)
        if isinstance(part, ReplyDelta):
            self._deltas.append(part)
        elif isinstance(part, ReplyFinished):
            self._lead.end(StoredAnswer.of(self._deltas, part))
            return replace(part, cache=CacheStatus.MISS)
        return part


class StoredReply:
    """The parts of an answer that was computed for an equal request.

    Its usage tells the tokens of that computation, those from the prefix cache included, and this request's own time.
    """

    is_worker_done = True
    """The worker never heard of the request."""

    error: RequestError | None = None
    """Nothing can go wrong any more."""

    def __init__(self, answer: StoredAnswer, *, admitted: RequestAdmitted, times: StageTimes) -> None:
        """Take the answer and the slot that this request holds."""
        self._admitted = admitted
        self._stop = answer.stop
        self._usage = replace(answer.usage, elapsed_s=(time.monotonic_ns() - times.admitted_ns) / 1e9)
        self._parts: Iterator[ReplyPart] = iter(answer.parts(self._usage))

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that this answer holds."""
        return self._admitted

    @property
    def stop(self) -> StopCause:
        """Why the answer ended."""
        return self._stop

    @property
    def usage(self) -> Usage:
        """What the answer costs."""
        return self._usage

    def count_unread(self) -> None:
        """Count nothing: the whole answer counts from the start."""

    def __aiter__(self) -> Self:
        """Iterate over the parts."""
        return self

    async def __anext__(self) -> ReplyPart:
        """Return the next part; waits for nobody.

        Raises:
            StopAsyncIteration: it is complete.
        """
        for part in self._parts:
            return part
        raise StopAsyncIteration
