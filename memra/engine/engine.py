"""Every model's sequences, one tick at a time: the whole engine as a plain object.

Knows models, requests and time; not threads, actors, HTTP or text. The worker owns one engine, calls it from one
thread, and hands what `step` returns upstairs. Nothing here waits: "no room" leaves a request in its queue.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from memra.engine.embedding_runner import EmbeddingRunner
from memra.engine.handoff_reader import ImportReport
from memra.engine.host_shares import HostShares
from memra.engine.loaded_model import LoadedModel
from memra.engine.model_runner import BatchDone, ModelRunner
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_handoff import ExportReport
from memra.engine.prefix_report import report_prefixes
from memra.engine.prefix_transfer import PrefixImport, Remembering, export_prefixes
from memra.engine.step_statistics import StepStatistics
from memra.engine.tenant_purge import purge_tenant
from memra.engine.tick_plan import Share, TickPlan
from memra.engine.work_counters import WorkCounters
from memra.errors import ConfigurationError, EngineFaultError, HandoffError, UnknownModelError
from memra.lanes.meter import LaneMeter
from memra.lanes.policy import LanePolicy
from memra.messages.load import WorkerLoad
from memra.messages.prefixes import PrefixesTrimmed, TenantPurged
from memra.messages.work import (
    PoolTexts,
    PrefixesMoved,
    RequestFailed,
    StepFinished,
    Submission,
    SubmitPrompt,
    WorkEvent,
    WorkReported,
)
from memra.settings import HostTierSettings
from memra.types import ModelName, RequestId

InstanceKey = tuple[ModelName, int]
"""A model's name and the number of its instance."""

_LEAST_CHUNK_SHARE, _MOST_CHUNK_SHARE = 0.25, 0.5
"""Of the aim for a step, for prompts: at least so much however long decoding takes, or they would starve on a slow
machine, and no more, for estimates are rough and the aim is for the slowest steps."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What all models share.

    Attributes:
        prefix_cache_bytes: for pages and states of known prefixes; 0 remembers none.
        lanes: how long a step should take while an interactive sequence decodes, from which the length of prompt
            chunks follows, and how long the other lanes' chunks may be.
        lane_window_s: how long a step's time counts in percentiles, seconds.
        host_tier: names the hand-off file.
    """

    prefix_cache_bytes: int = 0
    lanes: LanePolicy = field(default_factory=LanePolicy)
    lane_window_s: float = 30.0
    host_tier: HostTierSettings = field(default_factory=HostTierSettings)


def _ignore_progress(_progress_at: float, _num_prefill_rows: int) -> None:
    """Stand in where nobody watches."""


class Engine:
    """Serves several models side by side; in every tick each of them runs at most one batch."""

    def __init__(
        self,
        *,
        progress: Callable[[float, int], None] = _ignore_progress,
        clock: Callable[[], float] = time.monotonic,
        limits: EngineLimits | None = None,
        host: HostShares | None = None,
    ) -> None:
        """Start without models.

        Args:
            progress: called with the clock's time and the number of prompt tokens that were computed after every run
                of an executor, inside `step`, on its thread; must be quick and must not call the engine.
            clock: seconds, never running backwards.
            limits: what all models share.
            host: where evicted prefixes go; owned from now on. None forgets them.
        """
        self._progress = progress
        self._clock = clock
        self._limits = limits or EngineLimits()
        self._budget = PrefixBudget(self._limits.prefix_cache_bytes)
        self._host = host or HostShares(None)
        self._plan = TickPlan()
        self._num_preempted = 0
        self._import: PrefixImport | None = None
        self._moved = PrefixesMoved()
        self._runners: dict[InstanceKey, ModelRunner] = {}
        self._embedders: dict[InstanceKey, EmbeddingRunner] = {}
        self._pending: list[WorkEvent] = []
        self._counters = WorkCounters(lanes=LaneMeter(clock=clock, window_s=self._limits.lane_window_s))
        self._statistics = StepStatistics()
        self._idle_since: float | None = clock()

    def add_model(self, model: LoadedModel) -> None:
        """Serve a model from now on, after those already there in every tick.

        Raises:
            ConfigurationError: an instance of this name and number is served already.
        """
        key = (model.name, model.instance)
        if key in self._runners or key in self._embedders:
            raise ConfigurationError(f"two models are named {model.name}; give one of them another name")
        if model.pooled is not None:
            self._embedders[key] = EmbeddingRunner(
                model, model.pooled, counters=self._counters, beat=self._beat, clock=self._clock
            )
            return
        self._runners[key] = ModelRunner(
            model,
            counters=self._counters,
            beat=self._beat,
            clock=self._clock,
            budget=self._budget,
            host=self._host,
            lanes=self._limits.lanes,
        )

    def remove_model(self, name: ModelName, instance: int = 0) -> LoadedModel:
        """Stop serving a model and give it back, with every page free; the caller closes its executor.

        Its requests fail as overloaded; the next `step` says so. What was remembered of its prefixes is gone.

        Raises:
            UnknownModelError: no such instance is served.
        """
        embedder = self._embedders.pop((name, instance), None)
        if embedder is not None:
            self._pending += embedder.fail_all(f"model {name} was removed")
            self._note_idleness()
            return embedder.model
        runner = self._runners.pop((name, instance), None)
        if runner is None:
            raise UnknownModelError(f"no model {name} is served")
        self._pending += runner.fail_all(f"model {name} was removed")
        self._num_preempted += runner.num_preempted
        runner.close()
        self._note_idleness()
        return runner.model

    def close(self) -> None:
        """Drop all requests without a word, and close every model's executor; nothing may be called afterwards."""
        for name, instance in [*self._runners, *self._embedders]:
            self.remove_model(name, instance).executor.close()
        self._pending.clear()
        if self._import is not None:
            self._import.close()
        self._host.close()

    def submit(self, request: Submission) -> None:
        """Queue a prompt, or texts; what can never run is answered with `RequestFailed` by the next `step`.

        Raises:
            EngineFaultError: a request of this id is queued or running.
        """
        if any(runner.holds(request.request_id) for runner in self._all_runners()):
            raise EngineFaultError(f"request {request.request_id} is being worked on already")
        failed = self._queue(request)
        if failed is not None:
            self._pending.append(failed)
        self._note_idleness()

    def abort(self, request_id: RequestId) -> None:
        """Retire a request wherever it is, free its row and pages at once, and say nothing about it any more.

        Unknown and ended ids are ignored.
        """
        for runner in self._all_runners():
            runner.abort(request_id)
        self._pending = [event for event in self._pending if event.request_id != request_id]
        self._note_idleness()

    @property
    def has_work(self) -> bool:
        """Whether a `step` would do or say anything."""
        return (
            bool(self._pending)
            or self._import is not None
            or any(runner.num_queued + runner.num_active for runner in self._all_runners())
        )

    def step(self) -> StepFinished:
        """Run one tick: every model admits whom it can, and computes at most one batch, in the order of their adding.

        What each may do is the tick plan's: every interactive sequence that decodes moves on by one token. Embedding
        models come last: each takes a step, or, where somebody decodes, one of them in turn takes a short one. A fault
        stays with the request that causes it.
        """
        started_at = self._clock()
        if self._import is not None and not self._import.take_one():
            self._end_import(self._import)
        events, self._pending = self._pending, []
        for runner in self._runners.values():
            runner.admit(events)
        shares = self._plan.plan({key: runner.demand() for key, runner in self._runners.items()})
        chunk_s = self._chunk_s(shares)
        batches = [runner.step(events, shares[key], chunk_s=chunk_s) for key, runner in self._runners.items()]
        self._embed(events, is_bounded=any(batch.num_decoding for batch in batches))
        step_s = self._clock() - started_at
        self._note_step(step_s, batches)
        self._note_idleness()
        return StepFinished(tuple(events), step_s)

    def load(self) -> WorkerLoad:
        """Return how busy each model is; cheap enough for every step."""
        lanes = self._counters.lanes.report()
        return WorkerLoad(
            models={runner.model.name: runner.load() for runner in self._all_runners()},
            interactive_p50_ms=lanes.step_p50_ms,
            interactive_p99_ms=lanes.step_p99_ms,
            interactive_step_at=lanes.interactive_step_at,
            num_interactive=sum(runner.num_interactive for runner in self._all_runners()),
        )

    def trim(self) -> PrefixesTrimmed:
        """Forget every remembered prefix that no running sequence uses."""
        before = self._budget.num_bytes
        num_entries = sum(runner.prefixes.trim() for runner in self._runners.values())
        left = self._budget.num_bytes
        pools = [(runner.prefixes.holdings.page_bytes, runner.model.pool) for runner in self._runners.values()]
        return PrefixesTrimmed(
            num_entries,
            reclaimed_bytes=before - left,
            still_owned_bytes=left,
            pool_reserved_bytes=sum(page_bytes * pool.num_pages for page_bytes, pool in pools),
            pool_cached_bytes=sum(page_bytes * pool.num_free for page_bytes, pool in pools),
        )

    def purge_tenant(self, tenant: str) -> TenantPurged:
        """Forget what is remembered of a tenant, under all its salts; running sequences are left alone."""
        purged = purge_tenant([runner.prefixes for runner in self._runners.values()], tenant)
        if self._import is not None:
            self._import.leave_out(tenant)
        self._moved = replace(
            self._moved,
            num_purges=self._moved.num_purges + 1,
            num_purged=self._moved.num_purged + purged.host_entries,
            num_purged_bytes=self._moved.num_purged_bytes + purged.host_bytes,
        )
        return purged

    def export_prefixes(self, *, force: bool = False) -> ExportReport:
        """Write the hand-off file; nothing else is done meanwhile.

        Args:
            force: also while there is work.

        Raises:
            HandoffError: there is work, no file is named, or it cannot be written.
        """
        if self.has_work and not force:
            raise HandoffError("requests are being worked on; drain the server first, or force it")
        report = export_prefixes(self._remembering(), self._limits.host_tier)
        self._moved = replace(self._moved, num_exports=self._moved.num_exports + 1)
        return report

    def import_prefixes(self) -> ImportReport:
        """Begin to read the hand-off file: its header now, and an entry in every step that follows.

        Raises:
            HandoffError: the host store is off, no file is named, or it is refused; it is gone then.
        """
        if self._import is not None:
            raise HandoffError("a hand-off file is being read already")
        if not self._host.is_on:
            raise HandoffError("there is no host store to read it into; set MEMRA_KV_HOST_MB")
        self._import = PrefixImport(self._remembering(), self._limits.host_tier)
        return self._import.report

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
            num_active=sum(runner.num_active for runner in self._all_runners()),
            num_queued=sum(runner.num_queued for runner in self._all_runners()),
            num_pages_free=sum(runner.model.pool.num_free for runner in runners),
            num_pages_cached=sum(runner.num_cached_pages for runner in runners),
            lanes=self._counters.lanes.report(),
            num_preempted=self._num_preempted + sum(runner.num_preempted for runner in runners),
            prefix=report_prefixes(
                [runner.prefixes for runner in runners], self._host, budget=self._budget, moved=self._moved
            ),
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
        for runner in self._all_runners():
            runner.check_integrity()
        self._host.check_integrity()

    def _all_runners(self) -> Iterator[ModelRunner | EmbeddingRunner]:
        yield from self._runners.values()
        yield from self._embedders.values()

    def _end_import(self, ended: PrefixImport) -> None:
        self._import = None
        self._moved = replace(
            self._moved,
            num_imported=self._moved.num_imported + ended.num_entries,
            num_imported_bytes=self._moved.num_imported_bytes + ended.num_bytes,
            num_import_skips=self._moved.num_import_skips + ended.num_skips,
        )

    def _queue(self, request: Submission) -> RequestFailed | None:
        key = (request.model, request.instance)
        runner, embedder = self._runners.get(key), self._embedders.get(key)
        if runner is not None and isinstance(request, SubmitPrompt):
            return runner.submit(request)
        if embedder is not None and isinstance(request, PoolTexts):
            return embedder.submit(request)
        self._counters.num_failed += 1
        return RequestFailed(request.request_id, f"no model {request.model} is served")

    def _embed(self, events: list[WorkEvent], *, is_bounded: bool) -> None:
        """Move texts on.

        Args:
            events: what happens is added here.
            is_bounded: somebody decodes, and waits for the end of the tick.
        """
        waiting = [key for key, embedder in self._embedders.items() if embedder.has_work]
        for key in waiting[:1] if is_bounded else waiting:
            embedder = self._embedders[key]
            embedder.step(events, within_s=_LEAST_CHUNK_SHARE * self._step_s if is_bounded else None)
            # At the end of the line, so that the next bounded tick is another model's.
            self._embedders[key] = self._embedders.pop(key)

    @property
    def _step_s(self) -> float:
        """The aim for a step while somebody decodes, seconds."""
        return self._limits.lanes.slo_p99_ms / 1000.0

    def _beat(self, num_rows: int) -> None:
        self._progress(self._clock(), num_rows)

    def _chunk_s(self, shares: Mapping[InstanceKey, Share]) -> float:
        """Return the seconds that a prompt chunk may take in this tick, beside all that decodes in it."""
        decode_s = sum(
            runner.times.s_per_decode_step or 0.0
            for key, runner in self._runners.items()
            if shares[key].decodes and runner.num_active
        )
        step_s = self._step_s
        return min(max(step_s - decode_s, _LEAST_CHUNK_SHARE * step_s), _MOST_CHUNK_SHARE * step_s)

    def _note_step(self, step_s: float, batches: list[BatchDone]) -> None:
        lanes, num_decoding = self._counters.lanes, sum(batch.num_decoding for batch in batches)
        if num_decoding:
            self._statistics.record(step_s)
            lanes.note_batch(num_decoding)
        if any(batch.num_interactive for batch in batches):
            lanes.record_step(step_s)

    def _remembering(self) -> list[Remembering]:
        return [Remembering(runner.model, runner.prefixes) for runner in self._runners.values()]

    def _note_idleness(self) -> None:
        if self.has_work:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()
