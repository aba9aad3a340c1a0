"""Agents alone, agents beside harvest requests of another model, and the harvest alone: who pays for whom, in turns.

Also the time to the first token of a prompt that is known, and of prompts that begin alike. Every round measures
everything once; ratios are taken within a round. Refuses to know how a server is started and how figures are shown.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

from memra.cli_bench.agents.busy_agents import AgentsPlan, run_window
from memra.cli_bench.agents.chat_stream import Endpoint, stream_request
from memra.cli_bench.agents.percentiles import percentile
from memra.cli_bench.agents.server_gauges import wait_until_idle
from memra.cli_bench.spread import Measurements, Spread
from memra.errors import MeasurementError

AGENTS, HARVEST, BOTH = "agents alone", "harvest alone", "together"
GAP_P50, GAP_P99, FIRST, RATE = "gap p50", "gap p99", "first text p50", "harvest tokens/s"
COLD, WARM, ONE, EIGHT = "cold", "warm", "one request", "8 requests"
LONG, SHARED = "4,000-token prompt", "1,024 tokens in common"
GOALS = {GAP_P99: 1.25, RATE: 0.6, LONG: 0.03, SHARED: 1.5}
"""Ratios that memra aims at: at most, except for the harvest's rate, which is to keep at least that share."""
_LONG_TOKENS, _SHARED_TOKENS, _OWN_TOKENS, _NUM_ALIKE = 4000, 1024, 32, 8
_ID_RANGE = (1000, 20000)
"""Ids that every usual vocabulary has, with its control tokens outside."""


@dataclass(slots=True)
class AgentsReport:
    """What came of it.

    Attributes:
        load: seconds, and tokens a second for `RATE`, by who ran and what was measured.
        firsts: seconds by kind of request and case.
        num_refused: answers with 429 that harvest clients were given, in all rounds together.
        notes: what failed.
    """

    load: Measurements = field(default_factory=Measurements)
    firsts: Measurements = field(default_factory=Measurements)
    num_refused: int = 0
    notes: list[str] = field(default_factory=list)

    def load_ratio(self, case: str) -> Spread | None:
        """Together over alone, round by round."""
        return self.load.ratio(BOTH, HARVEST if case == RATE else AGENTS, case=case)

    def first_ratio(self, case: str) -> Spread | None:
        """Warm over cold, or eight over one."""
        return self.firsts.ratio(*((WARM, COLD) if case == LONG else (EIGHT, ONE)), case=case)


class AgentsBench:
    """Measures one server that serves two models."""

    def __init__(self, endpoint: Endpoint, plan: AgentsPlan, *, models: tuple[str, str], rounds: int) -> None:
        """Nothing is sent yet.

        Args:
            endpoint: the server.
            plan: of the load.
            models: of the agents, and of the harvest.
            rounds: all of them count; each begins with texts that the server has not seen.
        """
        self._endpoint = endpoint
        self._plan = plan
        self._agents, self._harvest = models
        self._rounds = rounds
        self._run = f"{time.time_ns():x}"
        self._num_salts = 0
        self._report = AgentsReport()

    @property
    def num_steps(self) -> int:
        """How often `announce` is called."""
        return 5 * self._rounds

    def run(self, announce: Callable[[str], None]) -> AgentsReport:
        """Measure everything; `announce` is told what comes next."""
        for number in range(1, self._rounds + 1):
            for name, measure in self._parts():
                announce(f"{name}, round {number}/{self._rounds}")
                try:
                    measure(name)
                    wait_until_idle(self._endpoint)
                except MeasurementError as error:
                    self._report.notes.append(f"{name}, round {number}: {error.message}")
                    return self._report
        return self._report

    def _parts(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        load = [(name, self._measure_load) for name in (AGENTS, HARVEST, BOTH)]
        return [*load, (LONG, self._measure_long), (SHARED, self._measure_shared)]

    def _measure_load(self, subject: str) -> None:
        agents, harvest = run_window(
            self._endpoint,
            self._plan,
            agents=None if subject == HARVEST else self._agents,
            harvest=None if subject == AGENTS else self._harvest,
            seed=self._new_salt(),
        )
        load = self._report.load
        if subject != HARVEST:
            load.add(subject, GAP_P50, percentile(agents.gaps_s, 0.5))
            load.add(subject, GAP_P99, percentile(agents.gaps_s, 0.99))
            load.add(subject, FIRST, percentile(agents.firsts_s, 0.5))
        if subject != AGENTS:
            load.add(subject, RATE, harvest.num_events / self._plan.window_s)
        self._report.num_refused += harvest.num_refused

    def _measure_long(self, case: str) -> None:
        prompt, salt = self._ids(_LONG_TOKENS, "long"), self._new_salt()
        self._report.firsts.add(COLD, case, self._first_token_s(prompt, salt))
        self._report.firsts.add(WARM, case, self._first_token_s(prompt, salt))

    def _measure_shared(self, case: str) -> None:
        alone = [*self._ids(_SHARED_TOKENS, "alone"), *self._ids(_OWN_TOKENS, "alone, own")]
        self._report.firsts.add(ONE, case, self._first_token_s(alone, self._new_salt()))
        common, salt = self._ids(_SHARED_TOKENS, "common"), self._new_salt()
        prompts = [[*common, *self._ids(_OWN_TOKENS, f"own {number}")] for number in range(_NUM_ALIKE)]
        with ThreadPoolExecutor(_NUM_ALIKE) as pool:
            times = list(pool.map(lambda prompt: self._first_token_s(prompt, salt), prompts))
        self._report.firsts.add(EIGHT, case, statistics.median(times))

    def _new_salt(self) -> str:
        self._num_salts += 1
        return f"{self._run}.{self._num_salts}"

    def _ids(self, count: int, name: str) -> list[int]:
        draw = Random(f"{self._run} {name}")  # noqa: S311  (tokens to compute with, nothing secret)
        return [draw.randint(*_ID_RANGE) for _ in range(count)]

    def _first_token_s(self, prompt_ids: list[int], salt: str) -> float:
        """Seconds until an answer of one token is there: its text may be none, so the stream's end is what counts."""
        body = {"model": self._agents, "prompt_ids": prompt_ids, "max_tokens": 1, "cache_salt": salt, "stream": True}
        answer = stream_request(self._endpoint, "/completions", body)
        if answer.is_failed:
            raise MeasurementError(answer.describe_failure())
        return answer.total_s
