"""What was counted of the lanes, as plain values that cross any border.

Refuses to know who counted. Made by the lane meter, completed by admission with what it turned away, shown by
`/yield/metrics`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memra.types import Lane


def zero_counts() -> dict[Lane, int]:
    """Return a count of nothing for every lane."""
    return dict.fromkeys(Lane, 0)


@dataclass(frozen=True, slots=True)
class LaneMetrics:
    """Counters since the start, by lane, and gauges of the recent steps.

    Attributes:
        admitted: requests that were given a row.
        shed: requests that were turned away for want of room or for the sake of a better lane.
        completed: requests that came to their end.
        tokens_out: sampled tokens.
        step_p50_ms, step_p99_ms: of the recent steps that moved an interactive sequence on; None without any.
        batch_size_last: sequences in the last step.
        interactive_step_at: when the last step that moved an interactive sequence on had ended, on the meter's clock;
            None before the first.
    """

    admitted: Mapping[Lane, int] = field(default_factory=zero_counts)
    shed: Mapping[Lane, int] = field(default_factory=zero_counts)
    completed: Mapping[Lane, int] = field(default_factory=zero_counts)
    tokens_out: Mapping[Lane, int] = field(default_factory=zero_counts)
    step_p50_ms: float | None = None
    step_p99_ms: float | None = None
    batch_size_last: int = 0
    interactive_step_at: float | None = None
