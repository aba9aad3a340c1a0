"""Percentiles over the last seconds: a bounded window of timed samples.

Knows numbers and the time that it is told; refuses to know what is measured, and asks no clock. One thread at a time.
Called by the lane meter.
"""

import math
from bisect import bisect_left, insort
from collections import deque

MAX_SAMPLES = 16_384
"""Kept at most: half a minute of steps of 2 ms; beyond it the oldest go first."""


class SampleWindow:
    """The samples of the last `window_s` seconds, at most `max_samples` of them.

    They are kept sorted beside their order of arrival, so that a percentile after every step costs a look-up and a
    sample costs a shift of at most 128 KiB.
    """

    def __init__(self, *, window_s: float = 30.0, max_samples: int = MAX_SAMPLES) -> None:
        """Start empty."""
        self._window_s = window_s
        self._max_samples = max_samples
        self._arrived: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        """Samples that are kept; the expired ones among them go with the next call."""
        return len(self._sorted)

    def add(self, value: float, *, now: float) -> None:
        """Take in a sample.

        Args:
            value: any number but NaN.
            now: seconds on a clock that never runs back.
        """
        self._expire(now)
        if len(self._sorted) >= self._max_samples:
            self._drop_oldest()
        self._arrived.append((now, value))
        insort(self._sorted, value)

    def percentile(self, percent: float, *, now: float) -> float | None:
        """Return the nearest-rank percentile, which is one of the samples; None without any.

        Args:
            percent: over 0, up to 100.
            now: as in `add`.
        """
        self._expire(now)
        if not self._sorted:
            return None
        return self._sorted[math.ceil(percent / 100.0 * len(self._sorted)) - 1]

    def _expire(self, now: float) -> None:
        while self._arrived and self._arrived[0][0] < now - self._window_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, value = self._arrived.popleft()
        del self._sorted[bisect_left(self._sorted, value)]
