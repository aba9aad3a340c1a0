"""One embedding model's share of a tick: takes texts from its queue, computes one step, and gives vectors out.

Beside `model_runner`, which does the same for a model that generates. Knows one model's requests and turns what happens
to them into events; not other models, threads or actors. A fault is pinned on the request that causes it. A vector's
bits depend on its own text alone, whatever the steps hold beside it. The engine owns one runner per model.
"""

from collections.abc import Callable, Sequence

import numpy as np

from memra.engine.device_faults import raise_if_device_is_lost
from memra.engine.embedding_queue import EmbeddingQueue, Job, Portion
from memra.engine.embedding_steps import STEP_ROWS
from memra.engine.loaded_model import LoadedModel
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.engine.step_times import StepTimes
from memra.engine.work_counters import WorkCounters
from memra.messages.load import ModelLoad
from memra.messages.work import PoolTexts, PromptStarted, RequestFailed, TextsPooled, WorkEvent
from memra.types import Lane, RequestId

_SMALLEST_STEP_ROWS = 16
"""Rows that a step has at least, however slow the machine: less wastes the reading of the weights."""
_FIRST_STEP_ROWS = 64
"""Rows of a step beside decoding sequences before any was measured."""


class EmbeddingRunner:
    """Moves one model's texts on."""

    def __init__(
        self,
        model: LoadedModel,
        pooled: PooledEmbeddings,
        *,
        counters: WorkCounters,
        beat: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        """Take a model over.

        Args:
            model: nobody else may use it until the runner is dropped.
            pooled: makes vectors with its executor.
            counters: shared totals to add to.
            beat: called with the number of tokens that were computed after every run of the executor.
            clock: seconds, never running backwards.
        """
        self.model = model
        self.times = StepTimes()
        self._pooled = pooled
        self._counters = counters
        self._beat = beat
        self._clock = clock
        self._queue = EmbeddingQueue(model, width=pooled.width, is_causal=pooled.is_causal)
        self._jobs: dict[RequestId, Job] = {}

    @property
    def num_queued(self) -> int:
        """Requests of which no text was begun."""
        return sum(not job.num_begun for job in self._jobs.values())

    @property
    def num_active(self) -> int:
        """Requests that have begun."""
        return len(self._jobs) - self.num_queued

    @property
    def num_interactive(self) -> int:
        """Interactive requests that wait or have begun."""
        return sum(job.request.lane is Lane.INTERACTIVE for job in self._jobs.values())

    @property
    def has_work(self) -> bool:
        """Whether anything waits."""
        return bool(self._jobs)

    def load(self) -> ModelLoad:
        """Return how busy the model is."""
        waiting = [job.request.lane for job in self._jobs.values() if not job.num_begun]
        return ModelLoad(
            page_tokens=self.model.executor.page_tokens,
            num_pages=self.model.pool.num_pages,
            num_pages_free=self.model.pool.num_free,
            max_rows=self.model.max_rows,
            num_active=len(self._jobs) - len(waiting),
            num_queued={lane: waiting.count(lane) for lane in Lane},
            s_per_prefill_token=self.times.s_per_prefill_token,
            num_queued_tokens=sum(job.num_waiting_tokens for job in self._jobs.values()),
        )

    def holds(self, request_id: RequestId) -> bool:
        """Whether the request waits or is computed here."""
        return request_id in self._jobs

    def submit(self, request: PoolTexts) -> RequestFailed | None:
        """Queue texts; the answer says why they can never be computed, if so."""
        refusal = self._pooled.find_refusal(request.sequences)
        if refusal is None and not request.sequences:
            refusal = "there is no text"
        if refusal is not None:
            self._counters.num_failed += 1
            return RequestFailed(request.request_id, refusal)
        job = self._jobs[request.request_id] = Job(request)
        self._queue.add(job)
        return None

    def abort(self, request_id: RequestId) -> None:
        """Drop a request at once and silently; unknown ids are ignored."""
        job = self._jobs.get(request_id)
        if job is not None:
            self._retire(job)
            self._counters.num_aborted += 1

    def fail_all(self, detail: str) -> list[RequestFailed]:
        """Drop every request because the model goes away; trying again makes sense to them."""
        return [self._fail(job, detail, overloaded=True) for job in list(self._jobs.values())]

    def step(self, events: list[WorkEvent], *, within_s: float | None) -> None:
        """Compute one step.

        Args:
            events: what happens is added here, in order.
            within_s: seconds that it may take, as far as was measured, because others wait for the step's end; None
                for as many rows as pay. An encoder's text is never cut, however long that takes.
        """
        portions = self._queue.take(STEP_ROWS if within_s is None else self._rows_within(within_s))
        if not portions:
            return
        for portion in portions:
            self._announce(portion.text.job, events)
        started_at = self._clock()
        self._run(portions, events)
        num_rows = sum(portion.num_rows for portion in portions)
        self.times.note_run(self._clock() - started_at, num_decoding=0, num_prefill_rows=num_rows)

    def check_integrity(self) -> None:
        """Compare texts and pages with each other; raises `IntegrityError`."""
        self._queue.check_integrity()

    def _rows_within(self, seconds: float) -> int:
        num_rows = self.times.rows_within(seconds)
        return _FIRST_STEP_ROWS if num_rows is None else min(STEP_ROWS, max(_SMALLEST_STEP_ROWS, num_rows))

    def _announce(self, job: Job, events: list[WorkEvent]) -> None:
        if job.is_announced:
            return
        job.is_announced = True
        self._counters.num_admitted += 1
        self._counters.lanes.admitted(job.request.lane)
        self._counters.num_prompt_tokens += job.num_tokens
        events.append(PromptStarted(job.request.request_id, num_cached_tokens=0))

    def _run(self, portions: Sequence[Portion], events: list[WorkEvent]) -> None:
        """Compute the portions together; where that fails, each alone, to find the request at fault.

        Computing one again is sound: its keys and values are written by position, and nothing was added to its sum.
        """
        failure = self._compute(portions)
        if failure is None:
            self._accept(portions, events)
            return
        if len(portions) == 1:
            events.append(self._blame(portions[0], failure))
            return
        for portion in portions:
            if self.holds(portion.text.job.request.request_id):
                self._run([portion], events)
            else:
                self._queue.release(portion.text)

    def _compute(self, portions: Sequence[Portion]) -> Exception | None:
        """Add the portions' rows to their texts' sums, or return why that failed, without the frames' memory."""
        page_tokens = self.model.executor.page_tokens
        num_done = 0
        try:
            self._pooled.add_rows(
                [
                    portion.text.piece(portion.num_rows, index=index, page_tokens=page_tokens)
                    for index, portion in enumerate(portions)
                ],
                [len(portion.text.token_ids) for portion in portions],
                [portion.text.total for portion in portions],
            )
            num_done = sum(portion.num_rows for portion in portions)
        except Exception as failure:  # noqa: BLE001  (whatever a backend raises stays with the request that causes it)
            return failure.with_traceback(None)
        finally:
            self._beat(num_done)
        return None

    def _accept(self, portions: Sequence[Portion], events: list[WorkEvent]) -> None:
        for portion in portions:
            text = portion.text
            text.num_done += portion.num_rows
            if text.num_left:
                continue
            text.job.vectors[text.index] = self._pooled.finish(text.total, len(text.token_ids))
            self._queue.release(text)
            if text.job.is_complete:
                events.append(self._complete(text.job))

    def _complete(self, job: Job) -> TextsPooled:
        self._retire(job)
        self._counters.num_completed += 1
        self._counters.lanes.completed(job.request.lane)
        vectors = np.stack([job.vectors[index] for index in range(len(job.vectors))])
        return TextsPooled(job.request.request_id, vectors.astype("<f4").tobytes(), width=self._pooled.width)

    def _blame(self, portion: Portion, failure: Exception) -> RequestFailed:
        raise_if_device_is_lost(failure)
        self._queue.release(portion.text)
        overloaded = isinstance(failure, MemoryError) or "out of memory" in str(failure).lower()
        return self._fail(portion.text.job, f"{type(failure).__name__}: {failure}", overloaded=overloaded)

    def _fail(self, job: Job, detail: str, *, overloaded: bool) -> RequestFailed:
        self._retire(job)
        self._counters.num_failed += 1
        return RequestFailed(job.request.request_id, detail, overloaded=overloaded)

    def _retire(self, job: Job) -> None:
        del self._jobs[job.request.request_id]
        self._queue.drop(job)
