"""How long the recent steps took: percentiles over a bounded window.

Knows durations only. The engine records a step here when it moved at least one decoding sequence on.
"""

import math
from collections import deque


class StepStatistics:
    """The last few thousand step times."""

    def __init__(self, num_steps: int = 2048) -> None:
        """Remember the last `num_steps` steps."""
        self._steps_s: deque[float] = deque(maxlen=num_steps)

    def record(self, step_s: float) -> None:
        """Take in the wall time of one step, seconds."""
        self._steps_s.append(step_s)

    def percentile_ms(self, percent: float) -> float | None:
        """Return the nearest-rank percentile in milliseconds: an observed step time; None before the first step.

        Args:
            percent: over 0, up to 100.
        """
        if not self._steps_s:
            return None
        rank = math.ceil(percent / 100.0 * len(self._steps_s))
        return sorted(self._steps_s)[rank - 1] * 1e3
