"""One model's share of a tick: admit, run one batch, sample, stop.

Knows one model's sequences and turns what happens to them into events; not other models, threads or actors. A fault is
pinned on the sequence that causes it. The engine owns one runner per model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memra.engine.device_faults import raise_if_device_is_lost
from memra.engine.host_shares import HostShares
from memra.engine.loaded_model import LoadedModel
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_cache import PrefixCache
from memra.engine.prompt_scoring import score_rows
from memra.engine.row_batches import RowBatchBuilder, RowSpan
from memra.engine.scheduler import Scheduler
from memra.engine.sequence import Sequence, SequencePhase
from memra.engine.sequence_memory import SequenceMemory
from memra.engine.step_times import StepTimes
from memra.engine.tick_plan import Demand, Share
from memra.engine.token_masks import MaskFitter
from memra.engine.work_counters import WorkCounters
from memra.errors import GrammarDeadEndError
from memra.lanes.policy import LanePolicy
from memra.messages.generation import TokenLogprob
from memra.messages.load import ModelLoad
from memra.messages.work import (
    PromptScored,
    PromptStarted,
    RequestFailed,
    SubmitPrompt,
    TokensGenerated,
    WorkEvent,
)
from memra.types import Lane, RequestId, StopCause, TokenId

_SMALLEST_CHUNK_ROWS = 16
"""Prompt tokens that a chunk has at least, however slow the machine: less wastes the reading of the weights."""
_FIRST_CHUNK_ROWS = 64
"""Prompt tokens of a chunk beside decoding rows before any was measured."""


@dataclass(frozen=True, slots=True)
class BatchDone:
    """What was in a batch: sequences that decoded, and the interactive ones among them."""

    num_decoding: int
    num_interactive: int


class ModelRunner:
    """Moves one model's sequences on."""

    def __init__(  # noqa: PLR0913  (what all models share, and the clock)
        self,
        model: LoadedModel,
        *,
        counters: WorkCounters,
        beat: Callable[[int], None],
        clock: Callable[[], float],
        budget: PrefixBudget,
        host: HostShares,
        lanes: LanePolicy,
    ) -> None:
        """Take a model over.

        Args:
            model: nobody else may use it until the runner is dropped.
            counters: shared totals to add to.
            beat: called with the number of prompt tokens that were computed after every run of the executor, so that
                a long tick shows signs of life.
            clock: seconds, never running backwards.
            budget: for remembered prefixes, shared by all models.
            host: where evicted prefixes go, shared by all models.
            lanes: bounds the prompts of judge and harvest.
        """
        self.model = model
        self._lanes = lanes
        self.times = StepTimes()
        self._counters = counters
        self._beat = beat
        self._clock = clock
        self._memory = SequenceMemory(model, budget=budget, host=host)
        self._scheduler = Scheduler(model, self._memory)
        self._batches = RowBatchBuilder(model)
        self._sampler = model.make_sampler(model.executor.vocab_size)
        self._masks = MaskFitter(model.executor.vocab_size)
        self._sequences: dict[RequestId, Sequence] = {}
        self._load: ModelLoad | None = None

    @property
    def num_queued(self) -> int:
        """Sequences that wait for admission."""
        return self._scheduler.num_queued

    @property
    def num_active(self) -> int:
        """Sequences that hold a row."""
        return self._scheduler.num_running

    @property
    def num_interactive(self) -> int:
        """Interactive sequences that wait or run."""
        return self._scheduler.count_interactive()

    @property
    def num_preempted(self) -> int:
        """Times that a sequence gave its room up for a more urgent one."""
        return self._scheduler.num_preempted

    @property
    def num_cached_pages(self) -> int:
        """Pages that hold remembered prefixes and nothing else."""
        return self._scheduler.count_remembering()

    @property
    def prefixes(self) -> PrefixCache:
        """What is remembered of sequences that ran."""
        return self._memory.prefixes

    def demand(self) -> Demand:
        """Return what could be done now."""
        return self._scheduler.demand()

    def load(self) -> ModelLoad:
        """Return how busy the model is; made anew only when a sequence has come or gone."""
        if self._load is None:
            model = self.model
            num_harvest, num_pages_harvest = self._scheduler.count_harvest()
            self._load = ModelLoad(
                page_tokens=model.executor.page_tokens,
                num_pages=model.pool.num_pages,
                num_pages_free=model.pool.num_free + self._scheduler.count_remembering(),
                num_pages_queued=self._scheduler.count_queued_pages(),
                max_rows=model.max_rows,
                num_active=self._scheduler.num_running,
                num_harvest=num_harvest,
                num_pages_harvest=num_pages_harvest,
                num_queued=self._scheduler.count_queued(),
                s_per_prefill_token=self.times.s_per_prefill_token,
                s_per_decode_step=self.times.s_per_decode_step,
                mean_row_s=self.times.mean_row_s,
            )
        return self._load

    def holds(self, request_id: RequestId) -> bool:
        """Whether the request is queued or running here."""
        return request_id in self._sequences

    def submit(self, request: SubmitPrompt) -> RequestFailed | None:
        """Queue a prompt; the answer says why it can never run, if so."""
        refusal = self._find_refusal(request)
        if refusal is not None:
            self._counters.num_failed += 1
            return RequestFailed(request.request_id, refusal)
        sequence = Sequence(request, context_tokens=self.model.context_tokens)
        self._sequences[request.request_id] = sequence
        self._scheduler.enqueue(sequence)
        self._load = None
        return None

    def abort(self, request_id: RequestId) -> None:
        """Retire a sequence at once and silently; unknown ids are ignored."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._retire(sequence)
            self._counters.num_aborted += 1

    def fail_all(self, detail: str) -> list[RequestFailed]:
        """Retire every sequence because the model goes away; trying again makes sense to them."""
        return [self._fail(sequence, detail, overloaded=True) for sequence in list(self._sequences.values())]

    def admit(self, events: list[WorkEvent]) -> None:
        """Give a row to everybody who fits."""
        while (sequence := self._scheduler.admit_next()) is not None:
            self._load = None
            sequence.started_at = self._clock()
            if sequence.generates_nothing:
                self._announce(sequence, events)
                self._complete(sequence)
                events.append(TokensGenerated(sequence.request_id, (), num_generated=0, stop=StopCause.MAX_TOKENS))

    def step(self, events: list[WorkEvent], share: Share, *, chunk_s: float) -> BatchDone:
        """Compute and sample one batch.

        Args:
            events: what happens is added here, in order.
            share: what may be done in this tick.
            chunk_s: seconds that prompts may take where the share bounds them.

        Returns:
            What was in the batch.
        """
        lanes = (Lane.INTERACTIVE,) * share.prefills + (Lane.JUDGE, Lane.HARVEST) * share.prefills_dark
        num_prefill_rows = self._rows_within(chunk_s, share) if share.is_bounded else None
        spans = self._scheduler.plan_spans(decodes=share.decodes, lanes=lanes, num_prefill_rows=num_prefill_rows)
        decoding = [span.sequence for span in spans if span.sequence.phase is SequencePhase.DECODING]
        num_decoding = len(decoding)
        num_interactive = sum(sequence.request.lane is Lane.INTERACTIVE for sequence in decoding)
        for span in spans:
            if not span.sequence.is_announced:
                self._announce(span.sequence, events)
        if spans:
            started_at = self._clock()
            num_rows = sum(span.num_rows for span in spans)
            self._run(spans, events)
            self.times.note_run(
                self._clock() - started_at, num_decoding=num_decoding, num_prefill_rows=num_rows - num_decoding
            )
        return BatchDone(num_decoding, num_interactive)

    def close(self) -> None:
        """Forget all prefixes; every sequence is gone."""
        self._memory.close()

    def check_integrity(self) -> None:
        """Compare sequences, rows and pages with each other; raises `IntegrityError`."""
        self._scheduler.check_integrity()

    def _find_refusal(self, request: SubmitPrompt) -> str | None:
        num_prompt_tokens, vocab_size = len(request.prompt_ids), self.model.executor.vocab_size
        if not request.prompt_ids:
            return "the prompt is empty"
        if num_prompt_tokens >= self.model.context_tokens:
            return f"a prompt of {num_prompt_tokens} tokens does not fit a context of {self.model.context_tokens}"
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= vocab_size:
            return f"a prompt token is outside of the vocabulary of {vocab_size}"
        num_pages = self.model.count_pages(min(num_prompt_tokens + request.max_new_tokens, self.model.context_tokens))
        if (request.max_new_tokens or request.scores_prompt) and num_pages > self.model.pool.num_pages:
            return f"the sequence may need {num_pages} cache pages, but the model has {self.model.pool.num_pages}"
        return None

    def _rows_within(self, seconds: float, share: Share) -> int:
        """Return the prompt tokens of a chunk beside decoding rows."""
        num_rows = self.times.rows_within(seconds)
        num_rows = _FIRST_CHUNK_ROWS if num_rows is None else max(_SMALLEST_CHUNK_ROWS, num_rows)
        if share.prefills:
            return num_rows
        return min(num_rows, *(self._lanes.prefill_budget[lane] for lane in (Lane.JUDGE, Lane.HARVEST)))

    def _announce(self, sequence: Sequence, events: list[WorkEvent]) -> None:
        """Say that a sequence's prefill begins, and what of it was there already."""
        sequence.is_announced = True
        num_cached = sequence.num_computed_tokens
        self._counters.num_admitted += 1
        self._counters.lanes.admitted(sequence.request.lane)
        self._counters.num_prompt_tokens += len(sequence.request.prompt_ids)
        self._counters.num_cached_tokens += num_cached
        events.append(PromptStarted(sequence.request_id, num_cached))

    def _run(self, spans: list[RowSpan], events: list[WorkEvent]) -> None:
        """Compute the spans together; where that fails, each alone, to find the sequence at fault.

        Running a span again is sound: its keys and values are written by position, to the same bits.
        """
        batch = self._batches.build(spans)
        logits = None
        try:
            logits = self.model.executor.run(batch)
        except Exception as failure:  # noqa: BLE001  (whatever a backend raises stays with the request that causes it)
            if len(spans) == 1:
                events.append(self._blame(spans[0].sequence, failure))
                return
        finally:
            self._beat(0 if logits is None else _count_prefill_rows(spans))
        if logits is not None:
            self._accept(spans, logits, events)
            return
        # Only here, outside of the handler, is the memory free again that the failed call's frames held.
        for span in spans:
            self._run([span], events)

    def _accept(self, spans: list[RowSpan], logits: NDArray[np.float32], events: list[WorkEvent]) -> None:
        """Note what was computed, score and sample: `logits` is `[N, vocab_size]`, the spans' outputs in order."""
        num_read = 0
        for span in spans:
            rows = logits[num_read : num_read + span.num_outputs]
            num_read += span.num_outputs
            if span.is_scored:
                event = self._score(span.sequence, rows)
                events.append(event)
                if isinstance(event, RequestFailed):
                    continue
            self._memory.accept(span.sequence, span.num_rows)
            if span.is_sampled:
                events.append(self._sample(span.sequence, rows[-1]))

    def _score(self, sequence: Sequence, rows: NDArray[np.float32]) -> PromptScored | RequestFailed:
        try:
            return PromptScored(sequence.request_id, score_rows(sequence, rows))
        except Exception as failure:  # noqa: BLE001  (as in _run)
            return self._blame(sequence, failure)

    def _sample(self, sequence: Sequence, logits: NDArray[np.float32]) -> WorkEvent:
        request, position = sequence.request, sequence.num_tokens
        if request.max_new_tokens == 0:  # its prompt was computed for its own sake
            self._complete(sequence)
            return TokensGenerated(request.request_id, (), num_generated=0, stop=StopCause.MAX_TOKENS)
        try:
            token_id, logprobs = self._choose(sequence, logits)
            stop = sequence.append(token_id)
        except Exception as failure:  # noqa: BLE001  (as in _run)
            return self._blame(sequence, failure)
        if stop is not StopCause.STOP_TOKEN:
            self._counters.num_generated_tokens += 1
            self._counters.lanes.generated(request.lane, 1)
        if stop is not None:
            self._complete(sequence)
        if sequence.num_tokens == position:  # the token only ended the sequence
            return TokensGenerated(request.request_id, (), num_generated=sequence.num_generated, stop=stop)
        return TokensGenerated(
            request.request_id, (token_id,), num_generated=sequence.num_generated, stop=stop, logprobs=logprobs
        )

    def _choose(self, sequence: Sequence, logits: NDArray[np.float32]) -> tuple[TokenId, tuple[TokenLogprob, ...]]:
        """Return the sequence's next token, and how likely it was where the request wants to know."""
        params, position, window = sequence.request.sampling, sequence.num_tokens, sequence.window
        mask = self._mask(sequence)
        if params.num_top_logprobs is None:
            return self._sampler.sample(logits, params, position=position, window=window, mask=mask), ()
        entry = self._sampler.sample_with_logprobs(logits, params, position=position, window=window, mask=mask)
        return entry.token_id, (entry,)

    def _mask(self, sequence: Sequence) -> NDArray[np.uint32] | None:
        """Return what the next token may be; None for anything."""
        request = sequence.request
        if sequence.constraint is not None:
            return self._masks.fit(sequence.constraint)
        if sequence.num_generated < request.min_new_tokens:
            return self._masks.all_but(request.eos_ids | request.stop_ids)
        return None

    def _complete(self, sequence: Sequence) -> None:
        if sequence.num_starts:
            self.times.note_row(self._clock() - sequence.started_at)
        self._retire(sequence)
        self._counters.num_completed += 1
        self._counters.lanes.completed(sequence.request.lane)

    def _blame(self, sequence: Sequence, failure: Exception) -> RequestFailed:
        raise_if_device_is_lost(failure)
        # Torch and drivers have out-of-memory errors of their own kinds; their text is what they share.
        overloaded = isinstance(failure, MemoryError) or "out of memory" in str(failure).lower()
        failed = self._fail(sequence, f"{type(failure).__name__}: {failure}", overloaded=overloaded)
        return replace(failed, is_dead_end=isinstance(failure, GrammarDeadEndError))

    def _fail(self, sequence: Sequence, detail: str, *, overloaded: bool) -> RequestFailed:
        self._retire(sequence)
        self._counters.num_failed += 1
        return RequestFailed(sequence.request_id, detail, overloaded=overloaded)

    def _retire(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request_id]
        self._load = None
        self._scheduler.retire(sequence)


def _count_prefill_rows(spans: list[RowSpan]) -> int:
    return sum(span.num_rows for span in spans if span.sequence.phase is not SequencePhase.DECODING)
