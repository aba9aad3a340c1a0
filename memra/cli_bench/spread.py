"""Repeated measurements and what is said about them: medians with their lowest and highest, ratios pair by pair.

Plain arithmetic; refuses to know what was measured. Every figure comes from rounds in which the compared things ran
one after the other, so a ratio is taken within a round before the median is taken over the rounds.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and what it hides."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def geometric_mean(values: Sequence[float]) -> float:
    """The mean that suits ratios; every value is above 0."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


@dataclass(slots=True)
class Measurements:
    """Values by subject and case, one a round, in the order of the rounds; None where a measurement failed."""

    values: dict[tuple[str, str], list[float | None]] = field(default_factory=dict)

    def add(self, subject: str, case: str, value: float | None) -> None:
        """Note the value of the next round."""
        self.values.setdefault((subject, case), []).append(value)

    @property
    def subjects(self) -> list[str]:
        """Everyone who was measured, in the order of their first value."""
        return list(dict.fromkeys(subject for subject, _ in self.values))

    @property
    def cases(self) -> list[str]:
        """Everything that was measured, in the order of its first value."""
        return list(dict.fromkeys(case for _, case in self.values))

    def spread(self, subject: str, case: str) -> Spread | None:
        """Over the rounds; None where nothing was measured."""
        values = [value for value in self.values.get((subject, case), []) if value is not None]
        return Spread.of(values) if values else None

    def ratio(self, subject: str, other: str, *, case: str) -> Spread | None:
        """How many times as much the first has as the other, round by round; None where no round has both."""
        pairs = zip(self.values.get((subject, case), []), self.values.get((other, case), []), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
        return Spread.of(ratios) if ratios else None


def measure_in_turns(  # noqa: PLR0913  (keyword-only settings and callbacks)
    subjects: Sequence[str],
    cases: Sequence[str],
    *,
    rounds: int,
    measure: Callable[[str, str], float | None],
    announce: Callable[[str], None],
    begin_round: Callable[[int], None] = lambda _: None,
) -> Measurements:
    """Measure everyone in turns, so that what disturbs the machine disturbs all alike.

    In each round, case by case, one subject follows the other: A B, and A B again in the next round. A first round
    warms caches up, fills the deep ones, and is not counted.

    Args:
        subjects: labels, in order.
        cases: labels, in order.
        rounds: counted rounds.
        measure: takes a subject and a case; None means that it failed, after which it is not tried again.
        announce: told what comes next.
        begin_round: called before every round with its number, 0 for the one that is not counted.
    """
    found, failed = Measurements(), set[tuple[str, str]]()
    for number in range(rounds + 1):
        begin_round(number)
        phase = f"round {number}/{rounds}" if number else "warming up"
        for case in cases:
            for subject in subjects:
                announce(f"{case}, {subject}, {phase}")
                value = None if (subject, case) in failed else measure(subject, case)
                if value is None:
                    failed.add((subject, case))
                if number:
                    found.add(subject, case, value)
    return found
