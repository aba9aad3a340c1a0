"""The time of a step beside a process that wants a processor too, against that of a step alone, in turns.

An engine whose threads wait for each other in every step may lose far more than the share of a processor that the other
process takes. Knows medians and means; refuses to know how engines step and who keeps the processor busy.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from memra.cli_bench.spread import Measurements, Spread
from memra.errors import MeasurementError

ALONE, BUSY = "alone", "beside a busy process"
MEDIAN, MEAN = "median", "mean"
GOAL_RATIO = 1.7
"""What memra aims at with as many threads as processors: the worst thread gets half of its processor, which would be 2,
and work that the others take over brings it down."""

StepTimes = Callable[[], Sequence[float]]
"""Runs steps of one row and returns the seconds of each."""


@dataclass(slots=True)
class BusyReport:
    """What came of it.

    Attributes:
        num_steps: of one row, in each round.
        seconds: of a step, by `ALONE` or `BUSY` and `case_of(engine, MEDIAN or MEAN)`.
        notes: what failed.
    """

    num_steps: int
    engines: list[str] = field(default_factory=list)
    seconds: Measurements = field(default_factory=Measurements)
    notes: list[str] = field(default_factory=list)

    def ratio(self, engine: str, kind: str) -> Spread | None:
        """How much longer a step takes beside the busy process, round by round."""
        return self.seconds.ratio(BUSY, ALONE, case=case_of(engine, kind))


def case_of(engine: str, kind: str) -> str:
    """Name an engine's median or mean among the measurements."""
    return f"{engine}, {kind}"


class BusyBench:
    """Measures engines that are loaded."""

    def __init__(
        self,
        engines: Mapping[str, StepTimes],
        *,
        keep_busy: Callable[[], AbstractContextManager[object]],
        rounds: int,
        num_steps: int,
    ) -> None:
        """Nothing is run yet.

        Args:
            engines: by label.
            keep_busy: keeps a processor busy from entering to leaving.
            rounds: counted rounds; one before them warms up.
            num_steps: how many each engine runs; for the report.
        """
        self._engines = engines
        self._keep_busy = keep_busy
        self._rounds = rounds
        self._report = BusyReport(num_steps, list(engines))

    @property
    def num_announced(self) -> int:
        """How often `announce` is called when nothing fails."""
        return 2 * len(self._engines) * (self._rounds + 1)

    def run(self, announce: Callable[[str], None]) -> BusyReport:
        """Measure everyone; `announce` is told what comes next."""
        engines = dict(self._engines)
        for number in range(self._rounds + 1):
            for engine, step in list(engines.items()):
                try:
                    self._measure_pair(engine, step, announce, number=number)
                except MeasurementError as error:
                    del engines[engine]
                    self._report.notes.append(f"{BUSY}: {engine}: {error.message}")
        return self._report

    def _measure_pair(self, engine: str, step: StepTimes, announce: Callable[[str], None], *, number: int) -> None:
        """Both or neither count, so that a ratio never compares two rounds."""
        phase = f"round {number}/{self._rounds}" if number else "warming up"
        announce(f"1 row {ALONE}, {engine}, {phase}")
        alone = step()
        announce(f"1 row {BUSY}, {engine}, {phase}")
        with self._keep_busy():
            busy = step()
        if not number:
            return
        for subject, times in ((ALONE, alone), (BUSY, busy)):
            self._report.seconds.add(subject, case_of(engine, MEDIAN), statistics.median(times))
            self._report.seconds.add(subject, case_of(engine, MEAN), statistics.fmean(times))
