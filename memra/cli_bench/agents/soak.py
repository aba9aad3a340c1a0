"""Mixed load for minutes, and whether the server is afterwards what it was before: memory, pages, gauges, steps.

Clients draw random requests, leave, come back when they are refused; meanwhile memory and gauges are noted. Refuses to
know how a server is started and how verdicts are shown.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from memra.cli_bench.agents.chat_stream import BUSY, Endpoint, StreamedAnswer, stream_chat
from memra.cli_bench.agents.random_load import RandomLoad, RandomRequest
from memra.cli_bench.agents.server_gauges import num_pages_lost, read_gauges, wait_until_idle
from memra.cli_bench.process_memory import ProcessMemory
from memra.errors import MeasurementError
from memra.telemetry import names

_MIB = 1 << 20
_MINUTE_S = 60.0
_WAIT_S = 1.0
_SAMPLE_S = 2.0
_LONG_S = 600.0
_SHORT_GROWTH_BYTES = 128 * _MIB
_STUCK_S = 120.0
"""No request of this mix needs as long on any machine that is fit to serve it."""


@dataclass(frozen=True, slots=True)
class SoakLimits:
    """What is still good.

    Attributes:
        growth_share, growth_bytes: what resident memory may grow by in the second half, the larger of both: by then
            buffers and caches have been filled.
        step_p99_ratio: of the last minute to the median of the minutes; None tells it and judges nothing.
        idle_s: until the gauges are back at zero after the last client has gone.
    """

    growth_share: float = 0.03
    growth_bytes: int = 32 * _MIB
    step_p99_ratio: float | None = 2.0
    idle_s: float = 5.0

    @classmethod
    def for_run(cls, seconds: float) -> "SoakLimits":
        """Limits for a run of that length.

        A short one is over before every page of the caches was touched, and a busy minute of the machine is much of it.
        """
        return cls() if seconds >= _LONG_S else cls(growth_bytes=_SHORT_GROWTH_BYTES, step_p99_ratio=None)


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one moment; memory is None where the system does not tell."""

    at_s: float
    resident_bytes: int | None
    step_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was looked at."""

    what: str
    found: str
    limit: str
    is_good: bool


@dataclass(slots=True)
class SoakReport:
    """What came of it.

    Attributes:
        num_answered, num_left, num_refused: answers by how they ended; refused with 429.
        failures: other ends, in the server's words.
        longest_s: the longest request.
    """

    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    num_answered: int = 0
    num_left: int = 0
    num_refused: int = 0
    failures: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every limit was kept."""
        return all(verdict.is_good for verdict in self.verdicts)

    @property
    def step_p99_by_minute(self) -> list[float]:
        """Medians of what the server said within each minute, milliseconds."""
        minutes: dict[int, list[float]] = {}
        for sample in self.samples:
            if sample.step_p99_ms is not None:
                minutes.setdefault(int(sample.at_s // _MINUTE_S), []).append(sample.step_p99_ms)
        return [statistics.median(values) for _, values in sorted(minutes.items())]

    @property
    def memory(self) -> list[tuple[float, int]]:
        """Seconds and resident bytes."""
        return [(sample.at_s, sample.resident_bytes) for sample in self.samples if sample.resident_bytes is not None]


class Soak:
    """One run against a server."""

    def __init__(
        self,
        endpoint: Endpoint,
        load: RandomLoad,
        *,
        read_memory: Callable[[], ProcessMemory | None],
        num_clients: int = 12,
        limits: SoakLimits,
    ) -> None:
        """Nothing is sent yet; whoever started the server ends it."""
        self._endpoint = endpoint
        self._load = load
        self._read_memory = read_memory
        self._num_clients = num_clients
        self._limits = limits
        self._lock = threading.Lock()
        self._report = SoakReport()

    def run(self, seconds: float, announce: Callable[[str], None]) -> SoakReport:
        """Load the server for so long, wait until it is idle, and judge; `announce` is told a line now and then.

        Raises:
            MeasurementError: the server does not answer for itself.
        """
        begin = time.perf_counter()
        end = begin + seconds
        with ThreadPoolExecutor(self._num_clients) as pool:
            clients = [pool.submit(self._keep_asking, end) for _ in range(self._num_clients)]
            while time.perf_counter() < end:
                self._sample(begin, announce)
                time.sleep(min(_SAMPLE_S, max(end - time.perf_counter(), 0.0)))
            for client in clients:
                client.result()
        self._report.seconds = time.perf_counter() - begin
        self._report.verdicts = [self._judge_idle(), *judge(self._report, self._limits)]
        return self._report

    def _sample(self, begin: float, announce: Callable[[str], None]) -> None:
        gauges, memory = read_gauges(self._endpoint), self._read_memory()
        resident = None if memory is None else memory.resident_bytes
        now_s = time.perf_counter() - begin
        self._report.samples.append(Sample(now_s, resident, gauges[names.METRIC_STEP_P99_MS]))
        size = "" if resident is None else f"{resident / _MIB:.0f} MiB, "
        announce(f"{now_s:.0f} s, {size}{self._report.num_answered} answered, {self._report.num_left} left")

    def _keep_asking(self, end: float) -> None:
        while time.perf_counter() < end:
            with self._lock:
                request = self._load.draw()
            answer = self._ask(request)
            while answer.status == BUSY and time.perf_counter() < end:
                time.sleep(answer.retry_after_s or _WAIT_S)
                answer = self._ask(request)

    def _ask(self, request: RandomRequest) -> StreamedAnswer:
        answer = stream_chat(self._endpoint, request.chat_body(), headers=request.headers, leaving=request.leaving)
        with self._lock:
            report = self._report
            report.longest_s = max(report.longest_s, answer.total_s)
            report.num_left += answer.has_left
            report.num_refused += answer.status == BUSY
            report.num_answered += not (answer.has_left or answer.is_failed)
            if answer.is_failed and answer.status != BUSY:
                report.failures.append(answer.describe_failure())
        return answer

    def _judge_idle(self) -> Verdict:
        limit_s = self._limits.idle_s
        try:
            taken_s = wait_until_idle(self._endpoint, within_s=limit_s)
        except MeasurementError as error:
            return Verdict("active and queued requests at the end", error.message, "0", is_good=False)
        lost = num_pages_lost(read_gauges(self._endpoint))
        found = f"0 after {taken_s:.2f} s; {lost} pages are neither free nor cached"
        return Verdict("requests and pages at the end", found, f"0 within {limit_s:g} s; 0 pages", is_good=lost == 0)


def judge(report: SoakReport, limits: SoakLimits) -> list[Verdict]:
    """Compare what was noted with the limits."""
    verdicts = [
        Verdict(
            "answers that failed",
            "; ".join([f"{len(report.failures)}", *report.failures[:1]]),
            "0",
            is_good=not report.failures,
        ),
        Verdict("longest request", f"{report.longest_s:.1f} s", f"{_STUCK_S:g} s", is_good=report.longest_s < _STUCK_S),
    ]
    if report.memory:
        verdicts.append(_judge_memory(report.memory, limits))
    minutes = report.step_p99_by_minute
    if minutes:
        ratio = minutes[-1] / statistics.median(minutes)
        found = f"{ratio:.2f} ({', '.join(f'{value:.0f}' for value in minutes)} ms)"
        limit = "-" if limits.step_p99_ratio is None else f"{limits.step_p99_ratio:g}"
        is_good = limits.step_p99_ratio is None or ratio <= limits.step_p99_ratio
        verdicts.append(Verdict("step p99, last minute over median minute", found, limit, is_good=is_good))
    return verdicts


def _judge_memory(memory: Sequence[tuple[float, int]], limits: SoakLimits) -> Verdict:
    """Growth in the second half by the line of least squares, so that no single sample decides."""
    half = memory[len(memory) // 2 :]
    size = statistics.median([resident for _, resident in half])
    slope = slope_of(half)
    growth = slope * (half[-1][0] - half[0][0])
    limit = max(limits.growth_share * size, limits.growth_bytes)
    found = f"{growth / _MIB:+.1f} MiB at {size / _MIB:.0f} MiB, {slope * _MINUTE_S / _MIB:+.2f} MiB a minute"
    return Verdict("resident memory, second half", found, f"{limit / _MIB:+.0f} MiB", is_good=growth <= limit)


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Of the line of least squares; 0 for fewer than two moments."""
    times, values = [at for at, _ in points], [value for _, value in points]
    return statistics.linear_regression(times, values).slope if len(set(times)) > 1 else 0.0
