"""How long `memra run` takes until it may be sent work, and how much memory it holds then.

Seconds from the start of the process to the first green `/readyz`, the interpreter and every import included; once as
it stands, and once from the cache of repacked weights where the environment names one. Knows starts and sums; refuses
to know how a server is started.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from memra.cli_bench.process_memory import ProcessMemory
from memra.cli_bench.spread import Measurements, measure_in_turns
from memra.errors import MeasurementError

COLD, REPACKED = "start", "start from the repack cache"
REPACK_VARIABLE = "MEMRA_REPACK_CACHE"
"""Names the folder of repacked weights; without it the server repacks them at every start."""
SERVER = "memra run"
_PROMPT = "The keeper of the lighthouse wrote down every evening how the sea had been. On the first day of the year,"
_ANSWER_TOKENS = 32


class StartedServer(Protocol):
    """A server on its way up."""

    def wait_until_ready(self) -> float:
        """Seconds from the start of its process to a green `/readyz`; raises `MeasurementError`."""
        ...

    def complete(self, prompt: str, *, max_tokens: int) -> int:
        """Have a prompt answered; returns the tokens of both; raises `MeasurementError`."""
        ...

    def read_memory(self) -> ProcessMemory | None:
        """What is resident now; None where the system does not tell."""
        ...


StartServer = Callable[[Mapping[str, str]], AbstractContextManager[StartedServer]]
"""Starts a server in this environment, and ends it."""


@dataclass(frozen=True, slots=True)
class StartMemory:
    """What one server held.

    Attributes:
        ready: when it became ready, before any request.
        answered: after one short answer, with what a step needs.
        num_cached_tokens: for which it then held keys and values, whole pages.
    """

    ready: ProcessMemory
    answered: ProcessMemory
    num_cached_tokens: int

    def beyond_bytes(self, *, file_bytes: int, cache_bytes_per_token: int) -> int:
        """Resident bytes after the answer, without the file's size and the keys and values.

        Interpreter, libraries, activations, and every second copy of the weights.
        """
        return self.answered.resident_bytes - file_bytes - self.num_cached_tokens * cache_bytes_per_token


@dataclass(slots=True)
class StartReport:
    """What came of it.

    Attributes:
        seconds: by `SERVER`, and `COLD` or `REPACKED`.
        memory: of the last start of each kind.
        notes: what failed.
    """

    seconds: Measurements = field(default_factory=Measurements)
    memory: dict[str, StartMemory] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class StartBench:
    """Starts servers one after the other."""

    def __init__(self, start: StartServer, *, environ: Mapping[str, str], rounds: int, page_tokens: int) -> None:
        """Nothing is started yet.

        Args:
            start: starts a server.
            environ: of the servers; `REPACK_VARIABLE` is taken out of it for the plain starts.
            rounds: counted starts of each kind; one before them fills the system's file cache and the repack cache.
            page_tokens: of the key-value cache.
        """
        self._start = start
        plain = {name: value for name, value in environ.items() if name != REPACK_VARIABLE}
        self._environments: dict[str, Mapping[str, str]] = {COLD: plain}
        if environ.get(REPACK_VARIABLE):
            self._environments[REPACKED] = environ
        self._rounds = rounds
        self._page_tokens = page_tokens
        self._report = StartReport()

    @property
    def num_steps(self) -> int:
        """How often `announce` is called."""
        return len(self._environments) * (self._rounds + 1)

    def run(self, announce: Callable[[str], None]) -> StartReport:
        """Measure all; `announce` is told what comes next."""
        self._report.seconds = measure_in_turns(
            [SERVER],
            list(self._environments),
            rounds=self._rounds,
            measure=lambda _, case: self._measure(case),
            announce=announce,
        )
        return self._report

    def _measure(self, case: str) -> float | None:
        try:
            with self._start(self._environments[case]) as server:
                elapsed_s = server.wait_until_ready()
                ready = server.read_memory()
                num_tokens = server.complete(_PROMPT, max_tokens=_ANSWER_TOKENS)
                answered = server.read_memory()
        except MeasurementError as error:
            self._report.notes.append(f"{case}: {error.message}")
            return None
        if ready is not None and answered is not None:
            num_cached = -(-num_tokens // self._page_tokens) * self._page_tokens
            self._report.memory[case] = StartMemory(ready, answered, num_cached)
        return elapsed_s
