"""Every model's sequences, one tick at a time: the whole engine as a plain object.

Knows models, requests and time; not threads, actors, HTTP or text. The worker owns one engine, calls it from one
thread, and hands what `step` returns upstairs. Nothing here waits: "no room" leaves a request in its queue.
"""

import time
from collections.abc import Callable

from memra.engine.loaded_model import LoadedModel
from memra.engine.model_runner import ModelRunner
from memra.engine.step_statistics import StepStatistics
from memra.engine.work_counters import WorkCounters
from memra.errors import ConfigurationError, EngineFaultError, UnknownModelError
from memra.messages.work import RequestFailed, StepFinished, SubmitPrompt, WorkEvent, WorkReported
from memra.types import ModelName, RequestId


def _ignore_progress(_beat_at: float) -> None:
    """Stand in where nobody watches."""


class Engine:
    """Serves several models side by side; in every tick each of them runs at most one batch."""

    def __init__(
        self, *, progress: Callable[[float], None] = _ignore_progress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without models.

        Args:
            progress: called with the clock's time after every run of an executor, inside `step`, on its thread; must
                be quick and must not call the engine.
            clock: seconds, never running backwards.
        """
        self._progress = progress
        self._clock = clock
        self._runners: dict[ModelName, ModelRunner] = {}
        self._pending: list[WorkEvent] = []
        self._counters = WorkCounters()
        self._statistics = StepStatistics()
        self._idle_since: float | None = clock()

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model from now on, after those already there in every tick.

        Raises:
            ConfigurationError: a model of this name is served already.
        """
        if model.name in self._runners:
            raise ConfigurationError(f"two models are named {model.name}; give one of them another name")
        self._runners[model.name] = ModelRunner(
            model, counters=self._counters, beat=lambda: self._progress(self._clock())
        )

    def remove_model(self, name: ModelName) -> LoadedModel:
        """Stop serving a model and give it back, with every page free; the caller closes its executor.

        Its requests fail as overloaded; the next `step` says so.

        Raises:
            UnknownModelError: no model of this name is served.
        """
        if name not in self._runners:
            raise UnknownModelError(f"no model {name} is served")
        runner = self._runners.pop(name)
        self._pending += runner.fail_all(f"model {name} was removed")
        self._note_idleness()
        return runner.model

    def close(self) -> None:
        """Drop all requests without a word, and close every model's executor; nothing may be called afterwards."""
        for name in list(self._runners):
            self.remove_model(name).executor.close()
        self._pending.clear()

    def submit(self, request: SubmitPrompt) -> None:
        """Queue a prompt; one that can never run is answered with `RequestFailed` by the next `step`.

        Raises:
            EngineFaultError: a request of this id is queued or running.
        """
        if any(runner.holds(request.request_id) for runner in self._runners.values()):
            raise EngineFaultError(f"request {request.request_id} is being worked on already")
        runner = self._runners.get(request.model)
        if runner is None:
            self._counters.num_failed += 1
            failed: RequestFailed | None = RequestFailed(request.request_id, f"no model {request.model} is served")
        else:
            failed = runner.submit(request)
        if failed is not None:
            self._pending.append(failed)
        self._note_idleness()

    def abort(self, request_id: RequestId) -> None:
        """Retire a request wherever it is, free its row and pages at once, and say nothing about it any more.

        Unknown and ended ids are ignored.
        """
        for runner in self._runners.values():
            runner.abort(request_id)
        self._pending = [event for event in self._pending if event.request_id != request_id]
        self._note_idleness()

    @property
    def has_work(self) -> bool:
        """Whether a `step` would do or say anything."""
        return bool(self._pending) or any(runner.num_queued + runner.num_active for runner in self._runners.values())

    def step(self) -> StepFinished:
        """Run one tick: every model, in the order in which they were added, admits and computes one batch.

        Every decoding sequence of every model moves on by one token. A fault stays with the request that causes it.
        """
        started_at = self._clock()
        events, self._pending = self._pending, []
        num_decoding = sum([runner.step(events) for runner in self._runners.values()])
        step_s = self._clock() - started_at
        if num_decoding:
            self._statistics.record(step_s)
        self._note_idleness()
        return StepFinished(tuple(events), step_s)

    def report(self) -> WorkReported:
        """Return the totals since the start and the gauges of this moment; costs a sort of the recent step times."""
        runners = self._runners.values()
        return WorkReported(
            num_admitted=self._counters.num_admitted,
            num_completed=self._counters.num_completed,
            num_aborted=self._counters.num_aborted,
            num_failed=self._counters.num_failed,
            num_prompt_tokens=self._counters.num_prompt_tokens,
            num_cached_tokens=self._counters.num_cached_tokens,
            num_generated_tokens=self._counters.num_generated_tokens,
            num_active=sum(runner.num_active for runner in runners),
            num_queued=sum(runner.num_queued for runner in runners),
            num_pages_free=sum(runner.model.pool.num_free for runner in runners),
            num_pages_total=sum(runner.model.pool.num_pages for runner in runners),
            step_p50_ms=self._statistics.percentile_ms(50),
            step_p99_ms=self._statistics.percentile_ms(99),
            idle_s=0.0 if self._idle_since is None else self._clock() - self._idle_since,
        )

    def check_integrity(self) -> None:
        """Compare all rows, pages and counts with each other; a walk over every page, for idle moments and tests.

        Raises:
            IntegrityError: they disagree, which is a bug.
        """
        for runner in self._runners.values():
            runner.check_integrity()

    def _note_idleness(self) -> None:
        if self.has_work:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()
