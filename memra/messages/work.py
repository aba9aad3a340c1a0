"""Between the request's task and the worker: token ids only, never text.

Down go commands, by tell; up comes one `StepFinished` a step, delivered in one hop. Ids are chosen upstairs, an abort
is idempotent, and the worker never waits for anybody.
"""

from dataclasses import dataclass, field

from memra.lanes.metrics import LaneMetrics
from memra.messages.constraint import TokenConstraint
from memra.messages.generation import TokenLogprob
from memra.messages.sampling import SamplingParams
from memra.types import Lane, ModelName, RequestId, StopCause, TokenId, WorkerPhase


@dataclass(frozen=True, slots=True)
class SubmitPrompt:
    """Queue one sequence for generation.

    Attributes:
        prompt_ids: at least one token, shorter than the model's context.
        max_new_tokens: upper bound on generated tokens, at least 0; already cut to the context.
        stop_ids: the client's tokens that end the sequence; looked at before `eos_ids`, and not counted as generated.
        eos_ids: the model's own tokens that end the sequence or its turn; one that does is counted as generated.
        instance: of the model, where several were loaded under one name; the one that the prompt was rendered for.
        namespace: sequences share cached prefixes within a namespace alone.
        affinity: names the conversation that the request goes on with, or None when the client did not say.
        traceparent: W3C trace context of the request, or None.
        constraint: what the answer may consist of, before its first token; each sequence copies it. None is anything.
        min_new_tokens: no token that ends the sequence is chosen before so many.
        scores_prompt: how likely the prompt's tokens are is told too, so none of them is taken from a cache; only where
            `sampling` asks for log probabilities.
    """

    request_id: RequestId
    model: ModelName
    prompt_ids: tuple[TokenId, ...]
    max_new_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_ids: frozenset[TokenId] = frozenset()
    eos_ids: frozenset[TokenId] = frozenset()
    lane: Lane = Lane.INTERACTIVE
    traceparent: str | None = None
    instance: int = 0
    namespace: str = field(default="", repr=False)
    affinity: str | None = field(default=None, repr=False)
    constraint: TokenConstraint | None = field(default=None, repr=False)
    min_new_tokens: int = 0
    scores_prompt: bool = False

    def __repr__(self) -> str:
        """Lengths instead of the prompt."""
        return (
            f"SubmitPrompt({self.request_id!r}, model={self.model!r}, num_prompt_tokens={len(self.prompt_ids)}, "
            f"max_new_tokens={self.max_new_tokens}, lane={self.lane.value!r})"
        )


@dataclass(frozen=True, slots=True)
class PoolTexts:
    """Make one vector of each text, with a model that embeds or ranks.

    Attributes:
        sequences: token ids of each text, with everything that the model wants around one; none is empty, none is
            longer than the model's context.
        instance: of the model, where several were loaded under one name; the one that the texts were rendered for.
        traceparent: W3C trace context of the request, or None.
    """

    request_id: RequestId
    model: ModelName
    sequences: tuple[tuple[TokenId, ...], ...]
    lane: Lane = Lane.INTERACTIVE
    traceparent: str | None = None
    instance: int = 0

    def __repr__(self) -> str:
        """Counts instead of the texts."""
        return f"PoolTexts({self.request_id!r}, model={self.model!r}, num_texts={len(self.sequences)})"


Submission = SubmitPrompt | PoolTexts
"""What the worker can be given to do."""


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """Retire a sequence at the next step, wherever it is; unknown ids are ignored."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class PromptStarted:
    """The sequence left the queue and its prefill begins.

    Attributes:
        num_cached_tokens: prompt tokens that were not computed again.
    """

    request_id: RequestId
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class PromptScored:
    """More of a prompt was computed whose tokens' likelihoods are wanted; all of it before the first new token.

    Attributes:
        logprobs: of the prompt's next tokens, in order; the very first token has none that says anything.
    """

    request_id: RequestId
    logprobs: tuple[TokenLogprob, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokensGenerated:
    """New tokens of one sequence.

    Attributes:
        token_ids: in order; a token of `stop_ids` or `eos_ids` that ended the sequence is not among them.
        stop: set on the last event of the sequence.
        num_generated: tokens sampled so far; an ending token of `eos_ids` is counted, one of `stop_ids` is not.
        logprobs: one for each of `token_ids` where the request asked for them, else none.
    """

    request_id: RequestId
    token_ids: tuple[TokenId, ...]
    num_generated: int
    stop: StopCause | None = None
    logprobs: tuple[TokenLogprob, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """Counts instead of tokens."""
        return f"TokensGenerated({self.request_id!r}, num_generated={self.num_generated}, stop={self.stop})"


@dataclass(frozen=True, slots=True)
class TextsPooled:
    """Every text of a request is a vector.

    Attributes:
        vectors: little-endian float32 values, text after text.
        width: values a text.
    """

    request_id: RequestId
    vectors: bytes = field(repr=False)
    width: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The engine could not go on with this sequence; others are not touched.

    Attributes:
        is_dead_end: the grammar that the client asked for left nothing to go on with.
        overloaded: the cause is want of memory or a restarted worker, so trying again makes sense.
        detail: the raw cause for the log; never sent to a client.
        is_worker_lost: the worker died over it, or over another; the next one may get the prompt again.
    """

    request_id: RequestId
    detail: str
    overloaded: bool = False
    is_worker_lost: bool = False
    is_dead_end: bool = False


WorkEvent = PromptStarted | PromptScored | TokensGenerated | TextsPooled | RequestFailed


@dataclass(frozen=True, slots=True)
class StepFinished:
    """Everything that one step of the worker has to say, delivered in one hop.

    Attributes:
        events: in the order in which they happened.
        step_s: wall time of the step, seconds.
    """

    events: tuple[WorkEvent, ...]
    step_s: float


@dataclass(frozen=True, slots=True)
class ReportWork:
    """Ask the worker for `WorkReported`."""


@dataclass(frozen=True, slots=True)
class PrefixesMoved:
    """What whoever administers the server did to what is remembered, since the worker began.

    Attributes:
        num_exports: hand-off files that were written.
        num_imported, num_imported_bytes: entries that were read from such files, and their pages and states.
        num_import_skips: entries of such files that were damaged, of other weights, or had no room.
        num_purges: tenants that were purged.
        num_purged, num_purged_bytes: entries that went by that from the host store, and their bytes.
    """

    num_exports: int = 0
    num_imported: int = 0
    num_imported_bytes: int = 0
    num_import_skips: int = 0
    num_purges: int = 0
    num_purged: int = 0
    num_purged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PrefixReported:
    """What is remembered of sequences that ran, over all models.

    Attributes:
        num_hits, num_misses: sequences that went on from something remembered, and that did not.
        num_hit_tokens: prompt tokens that were not computed again.
        num_inserts, num_evictions: pages that came; pages and states that went or were moved to the host store.
        num_entries, num_bytes: pages of the moment, in the executors and in the host store; bytes in the executors.
        lcp_counts: sequences by length of their known prefix; `lcp_edges` are the classes' lower bounds, tokens.
        host_entries, host_bytes: pages and states in the host store.
        num_promotions: pages and states that came back from it.
        num_host_drops: that were forgotten for want of room in it.
        moved: on demand.
    """

    num_hits: int = 0
    num_misses: int = 0
    num_hit_tokens: int = 0
    num_inserts: int = 0
    num_evictions: int = 0
    num_entries: int = 0
    num_bytes: int = 0
    lcp_edges: tuple[int, ...] = ()
    lcp_counts: tuple[int, ...] = ()
    host_entries: int = 0
    host_bytes: int = 0
    num_promotions: int = 0
    num_host_drops: int = 0
    moved: PrefixesMoved = field(default_factory=PrefixesMoved)


@dataclass(frozen=True, slots=True)
class WorkReported:
    """Counters of the worker since its start, and gauges of this moment.

    Attributes:
        step_p50_ms, step_p99_ms: over the recent steps that decoded at least one row; None before the first.
        num_pages_free, num_pages_total: summed over all models.
        num_pages_cached: that hold remembered prefixes and nothing else; they are given up when a sequence needs them.
        num_preempted: times that a sequence gave its room up for a more urgent one.
        lanes: what was counted by lane, but for `shed`, which admission counts.
    """

    num_admitted: int = 0
    num_completed: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    num_active: int = 0
    num_queued: int = 0
    num_pages_free: int = 0
    num_pages_total: int = 0
    num_pages_cached: int = 0
    num_preempted: int = 0
    prefix: PrefixReported = field(default_factory=PrefixReported)
    step_p50_ms: float | None = None
    step_p99_ms: float | None = None
    idle_s: float = 0.0
    lanes: LaneMetrics = field(default_factory=LaneMetrics)


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How far the prefill that goes on now has come, all prompts together.

    Attributes:
        num_rows: prompt tokens computed since the last step without a prefill.
        num_chunks: runs of an executor that computed them.
        progress_at: `time.monotonic()` of the last one.
    """

    num_rows: int
    num_chunks: int
    progress_at: float


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """What the worker wrote down about itself at its last sign of life.

    Attributes:
        beat_at: `time.monotonic()` of the last loop iteration.
        tick_max_ms: the longest iteration so far.
        generation: 0 for the first worker, +1 for each restart.
        progress_at: `time.monotonic()` of the last run of an executor; None before the first.
        prefill: None while no prompt is computed.
        idle_since: `time.monotonic()`; None unless idle.
        loss: why the worker died; None while it lives.
    """

    phase: WorkerPhase
    beat_at: float
    tick_max_ms: float
    generation: int
    progress_at: float | None = None
    prefill: PrefillProgress | None = None
    idle_since: float | None = None
    loss: str | None = None
