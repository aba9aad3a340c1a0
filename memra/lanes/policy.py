"""What each lane may do, so that interactive requests stay quick: who comes in, and how long a prompt's chunk may be.

Pure: it is told what is going on and answers. Refuses to know requests, models, memory and clocks. Admission asks it
about new requests, the engine about the chunks of dark lanes (judge and harvest), and a controller in another process
may ask it the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memra.types import Lane

DEFAULT_S_PER_TOKEN = 1.0 / 8_000.0
"""Assumed for a prompt's token until it is measured: 8 tokens a millisecond."""

SMALLEST_SLICE_TOKENS = 16
"""A dark prompt's chunk is never shorter, so that it moves on even where decoding alone takes longer than the aim."""


class LaneVerdict(StrEnum):
    """Whether a request may come in, or why not."""

    ADMIT = "admit"
    WAIT = "wait"
    """Interactive, and all rows of the lane are taken: it comes in and queues."""
    AT_CAPACITY = "at_capacity"
    STARVED = "starved"
    """Interactive work is there and has not moved on for longer than the aim."""
    OVER_SLO = "over_slo"
    """Interactive steps take too long already."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """What is going on as a lane's request arrives.

    Attributes:
        num_held: requests of the lane that are in the house.
        num_interactive: interactive sequences that wait or run.
        step_p99_ms: of the recent steps that moved an interactive sequence on; None without any.
        step_age_s: since the last such step, seconds; None before the first.
    """

    num_held: int = 0
    num_interactive: int = 0
    step_p99_ms: float | None = None
    step_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """The rules.

    Attributes:
        slo_p99_ms: aim for the 99th percentile of the steps that move an interactive sequence on.
        shed_at: fraction of the aim from which a dark lane is turned away.
        prefill_budget: a lane's prompt tokens in one step, at most.
        max_sessions: a lane's requests in the house; interactive ones beyond it queue.
    """

    slo_p99_ms: float = 50.0
    shed_at: Mapping[Lane, float] = field(default_factory=lambda: {Lane.JUDGE: 1.0, Lane.HARVEST: 0.9})
    prefill_budget: Mapping[Lane, int] = field(
        default_factory=lambda: {Lane.INTERACTIVE: 1024, Lane.JUDGE: 256, Lane.HARVEST: 256}
    )
    max_sessions: Mapping[Lane, int] = field(
        default_factory=lambda: {Lane.INTERACTIVE: 64, Lane.JUDGE: 4, Lane.HARVEST: 8}
    )

    def may_admit(self, lane: Lane, view: LaneView) -> LaneVerdict:
        """Say whether a request of a lane may come in.

        Interactive ones always may. A dark one may while its lane has room and, where there is interactive work, that
        moves on and its steps stay below the lane's fraction of the aim; as long as none was measured, they do.
        """
        is_full = view.num_held >= self.max_sessions[lane]
        if lane is Lane.INTERACTIVE:
            return LaneVerdict.WAIT if is_full else LaneVerdict.ADMIT
        if is_full:
            return LaneVerdict.AT_CAPACITY
        if not view.num_interactive:
            return LaneVerdict.ADMIT
        if view.step_age_s is not None and 1000.0 * view.step_age_s > self.slo_p99_ms:
            return LaneVerdict.STARVED
        if view.step_p99_ms is not None and view.step_p99_ms >= self.slo_p99_ms * self.shed_at[lane]:
            return LaneVerdict.OVER_SLO
        return LaneVerdict.ADMIT

    def prefill_tokens(self, lane: Lane, *, decode_s: float, s_per_token: float | None) -> int:
        """Return how many prompt tokens of a lane one step may compute.

        A dark lane gets what fits into the aim beside the step's decoding, within its budget, and never less than
        `SMALLEST_SLICE_TOKENS` or the budget, whichever is smaller. The interactive lane gets its budget.

        Args:
            lane: whose prompts.
            decode_s: what the step's decoding takes, seconds.
            s_per_token: measured time of one prompt token, seconds; None or 0 where none was.
        """
        budget = self.prefill_budget[lane]
        if lane is Lane.INTERACTIVE:
            return budget
        left_s = self.slo_p99_ms / 1000.0 - decode_s
        num_fitting = min(budget, max(0.0, left_s) / (s_per_token or DEFAULT_S_PER_TOKEN))
        return max(int(num_fitting), min(budget, SMALLEST_SLICE_TOKENS))
