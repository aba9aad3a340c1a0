"""What the engine has done since it started, counted; read by the metrics."""

from dataclasses import dataclass, field

from memra.lanes.meter import LaneMeter


@dataclass(slots=True)
class WorkCounters:
    """Running totals over all models, removed ones included; the meaning of each is that of `WorkReported`.

    Attributes:
        lanes: the same by lane, and the recent steps that moved an interactive sequence on.
    """

    num_admitted: int = 0
    num_completed: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    lanes: LaneMeter = field(default_factory=LaneMeter)
