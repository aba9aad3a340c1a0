"""Served against bare: the same prompts to a server and to the engine's own loop, in turns.

The bare loop is an engine in a worker's process, without HTTP; another server may be driven as well. Knows pairs and
ratios; refuses to know how either is started.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from memra.cli_bench.load_client import LoadClient, Target
from memra.cli_bench.spread import Measurements, Spread, geometric_mean, measure_in_turns
from memra.cli_bench.streams import StreamReport, summarise
from memra.errors import MeasurementError

BARE = "bare"
SERVED = "served"
NUM_CLIENTS = (1, 4, 8, 16)
NUM_PAIRS = 5
_TOPICS = ("rivers", "harbours", "lighthouses", "gardens", "mountains", "markets", "bridges", "forests")


class Bare(Protocol):
    """A process with an engine: it knows the operation `generate`."""

    def call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Ask, wait, and return the reply; raises `MeasurementError`."""
        ...


@dataclass(frozen=True, slots=True)
class ServedPlan:
    """What is asked of the servers.

    Attributes:
        num_clients: streams that are opened together.
        max_new_tokens: of each answer.
        pairs: how often each is measured.
    """

    num_clients: tuple[int, ...] = NUM_CLIENTS
    max_new_tokens: int = 64
    pairs: int = NUM_PAIRS


@dataclass(slots=True)
class ServedReport:
    """What came of it.

    Attributes:
        client: which load client ran.
        rates: tokens a second, by who answered and number of clients.
        streams: the last round of every server and number of clients.
        notes: what failed.
    """

    client: str
    rates: Measurements = field(default_factory=Measurements)
    streams: dict[tuple[str, str], StreamReport] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratio(self, case: str, *, other: str = BARE) -> Spread | None:
        """Served against another, pair by pair."""
        return self.rates.ratio(SERVED, other, case=case)

    def mean_ratio(self, *, other: str = BARE) -> float | None:
        """Geometric mean over the numbers of clients; None where nothing was compared."""
        medians = [ratio.median for case in self.rates.cases if (ratio := self.ratio(case, other=other)) is not None]
        return geometric_mean(medians) if medians else None


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """A server to drive: its label, where it is, the model's name there, and its key."""

    label: str
    target: Target
    model: str
    api_key: str | None = None


def make_prompts(num_prompts: int, *, round_number: int = 0) -> list[str]:
    """Different prompts of about the same length; none of two rounds share a beginning that could be reused."""
    return [
        f"{round_number * num_prompts + number + 1001}. Chapter about {_TOPICS[number % len(_TOPICS)]}. In the year "
        f"{1700 + 7 * number}, a traveller wrote a long letter home, in which every paragraph begins with the weather. "
        "Dear friends,"
        for number in range(num_prompts)
    ]


class ServedBench:
    """Measures the servers and the bare loop in turns."""

    def __init__(self, plan: ServedPlan, *, client: LoadClient, bare: Bare, servers: Sequence[ServedTarget]) -> None:
        """Use processes that are running; whoever started them ends them."""
        self._plan = plan
        self._client = client
        self._bare = bare
        self._servers = {server.label: server for server in servers}
        self._report = ServedReport(client.kind)
        self._rounds: Counter[tuple[str, int]] = Counter()

    def run(self, announce: Callable[[str], None]) -> ServedReport:
        """Measure everything; `announce` is told what comes next."""
        cases = {_case(num): num for num in self._plan.num_clients}
        self._report.rates = measure_in_turns(
            [BARE, *self._servers],
            list(cases),
            rounds=self._plan.pairs,
            measure=lambda subject, case: self._measure(subject, case, num_clients=cases[case]),
            announce=announce,
        )
        return self._report

    @property
    def num_steps(self) -> int:
        """How often `announce` is called."""
        return (len(self._servers) + 1) * len(self._plan.num_clients) * (self._plan.pairs + 1)

    def _measure(self, subject: str, case: str, *, num_clients: int) -> float | None:
        prompts = make_prompts(num_clients, round_number=self._rounds[subject, num_clients])
        self._rounds[subject, num_clients] += 1
        try:
            if subject == BARE:
                return self._measure_bare(prompts)
            report = self._measure_server(self._servers[subject], prompts)
        except MeasurementError as error:
            self._report.notes.append(f"{case}, {subject}: {error.message}")
            return None
        self._report.streams[subject, case] = report
        return report.tokens_per_s

    def _measure_bare(self, prompts: Sequence[str]) -> float:
        reply = self._bare.call("generate", texts=prompts, max_new_tokens=self._plan.max_new_tokens)
        return float(reply["num_tokens"]) / float(reply["elapsed_s"])

    def _measure_server(self, server: ServedTarget, prompts: Sequence[str]) -> StreamReport:
        bodies = [self._body(server.model, prompt) for prompt in prompts]
        requests = [server.target.request(body, api_key=server.api_key) for body in bodies]
        return summarise(self._client.drive(server.target, requests))

    def _body(self, model: str, prompt: str) -> Mapping[str, object]:
        return {
            "model": model,
            "prompt": prompt,
            "max_tokens": self._plan.max_new_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _case(num_clients: int) -> str:
    return "1 client" if num_clients == 1 else f"{num_clients} clients"
