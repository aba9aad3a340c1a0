"""Counts what happens in the lanes, and how long the steps of the interactive one take.

Knows lanes and durations; refuses to know requests, models and what follows from the figures. One thread at a time: the
engine keeps one for what runs, and whoever turns requests away may keep another.
"""

import time
from collections.abc import Callable

from memra.lanes.metrics import LaneMetrics, zero_counts
from memra.lanes.window import SampleWindow
from memra.types import Lane


class LaneMeter:
    """Counters since the start, and a window of recent step times."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, window_s: float = 30.0) -> None:
        """Start at zero.

        Args:
            clock: seconds, never running backwards.
            window_s: how far back the percentiles look, seconds.
        """
        self._clock = clock
        self._admitted, self._shed, self._completed, self._tokens_out = (zero_counts() for _ in range(4))
        self._steps = SampleWindow(window_s=window_s)
        self._batch_size_last = 0
        self._interactive_step_at: float | None = None

    def admitted(self, lane: Lane) -> None:
        """Count a request that was given a row; one that is preempted and goes on counts once."""
        self._admitted[lane] += 1

    def shed(self, lane: Lane) -> None:
        """Count a request that was turned away."""
        self._shed[lane] += 1

    def completed(self, lane: Lane) -> None:
        """Count a request that came to its end."""
        self._completed[lane] += 1

    def generated(self, lane: Lane, num_tokens: int) -> None:
        """Count sampled tokens."""
        self._tokens_out[lane] += num_tokens

    def record_step(self, step_s: float) -> None:
        """Take in a step that moved at least one interactive sequence on; wall time, seconds, all of the step."""
        self._interactive_step_at = now = self._clock()
        self._steps.add(1000.0 * step_s, now=now)

    def note_batch(self, num_sequences: int) -> None:
        """Keep the number of sequences in the step that ended."""
        self._batch_size_last = num_sequences

    def report(self) -> LaneMetrics:
        """Return the figures of this moment; cheap enough for every step."""
        now = self._clock()
        return LaneMetrics(
            admitted=dict(self._admitted),
            shed=dict(self._shed),
            completed=dict(self._completed),
            tokens_out=dict(self._tokens_out),
            step_p50_ms=self._steps.percentile(50, now=now),
            step_p99_ms=self._steps.percentile(99, now=now),
            batch_size_last=self._batch_size_last,
            interactive_step_at=self._interactive_step_at,
        )
