"""What the worker writes down after every step for those who decide upstairs: plain gauges, never waited for.

Admission reads them to say how long a request would wait; they are as old as the last step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memra.types import Lane, ModelName


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """How busy one model is.

    Attributes:
        page_tokens: tokens per page.
        num_pages: pages in all.
        num_pages_free: pages that a new sequence may have: free ones, and those that only keep prefixes.
        num_pages_queued: pages that the waiting sequences will ask for.
        max_rows: sequences that run at once.
        num_active: sequences that run.
        num_harvest, num_pages_harvest: those of the harvest lane among them, and their pages: they give way to others.
        num_queued: sequences that wait, by lane.
        s_per_prefill_token: measured, seconds; None before the first prefill.
        s_per_decode_step: measured, seconds for one token of every running sequence; None before the first.
        mean_row_s: how long a sequence holds its row, seconds, over recent ones; None before the first end.
        num_queued_tokens: of texts that wait to be made vectors; 0 for a model that generates.
    """

    page_tokens: int
    num_pages: int
    num_pages_free: int
    num_pages_queued: int = 0
    max_rows: int = 16
    num_active: int = 0
    num_harvest: int = 0
    num_pages_harvest: int = 0
    num_queued: Mapping[Lane, int] = field(default_factory=dict)
    s_per_prefill_token: float | None = None
    s_per_decode_step: float | None = None
    mean_row_s: float | None = None
    num_queued_tokens: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """How busy the worker is.

    Attributes:
        models: by name; where several instances of one name live, the newest.
        interactive_p50_ms, interactive_p99_ms: of recent steps that moved an interactive sequence on; None without any.
        interactive_step_at: `time.monotonic()` of the last such step; None before the first.
        num_interactive: interactive sequences that wait or run.
    """

    models: Mapping[ModelName, ModelLoad] = field(default_factory=dict)
    interactive_p50_ms: float | None = None
    interactive_p99_ms: float | None = None
    interactive_step_at: float | None = None
    num_interactive: int = 0
