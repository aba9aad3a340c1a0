"""One model measured: every engine that was asked for, in turns, then the time to the first token, then served.

The processes of all engines run side by side and take turns; they are started here and ended here. Refuses to know
arguments and tables.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from memra.cli_bench.cases import BenchPlan, Case, split_by_context
from memra.cli_bench.load_client import Target, make_load_client
from memra.cli_bench.progress import Progress
from memra.cli_bench.served_bench import SERVED, ServedBench, ServedPlan, ServedReport, ServedTarget
from memra.cli_bench.server_process import ServerProcess
from memra.cli_bench.spread import Measurements, measure_in_turns
from memra.cli_bench.subjects import (
    LLAMA_CPP,
    Facts,
    LoadSettings,
    Subject,
    load_llama,
    load_memra,
    start_llama,
    start_memra,
)
from memra.cli_bench.worker_process import thread_environment
from memra.cli_doctor.memory import ReadTest
from memra.errors import MeasurementError

COLD, WARM = "first token cold", "first token warm"
_START_STRIDE = 1_000_003
"""Between the numbers that two cold prompts begin with: they share no prefix."""
_PROMPT_ROOM_TOKENS = 128
"""More than a prompt of `make_prompts` takes in any tokenizer."""


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model that is on this machine.

    Attributes:
        vocab_size: tokens to draw from.
        description: family, type and size, for the heading.
    """

    name: str
    path: Path
    context_tokens: int
    vocab_size: int
    description: str


@dataclass(frozen=True, slots=True)
class Engines:
    """Who is measured.

    Attributes:
        executors: names of memra's executors, the main one first.
        llama_python: the Python that has llama-cpp-python; None leaves llama.cpp out.
        num_threads: for each of them.
    """

    executors: tuple[str, ...]
    llama_python: str | None
    num_threads: int


@dataclass(frozen=True, slots=True)
class ServedOptions:
    """Whether and against whom the server is measured.

    Attributes:
        plan: None leaves it out.
        arguments: of `memra run`, beside the model and the address.
        api_key: of memra's own server.
        other_url: another server, or None.
        other_key: its key.
    """

    plan: ServedPlan | None = None
    arguments: tuple[str, ...] = ()
    api_key: str | None = None
    other_url: str | None = None
    other_key: str | None = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The server's settings that the bare engine must share."""

    chunk_tokens: int
    max_rows: int


@dataclass(slots=True)
class ModelReport:
    """Everything about one model.

    Attributes:
        rates: tokens a second by engine and case.
        read_rates: bytes a second that the memory gave, once in every round.
        first_tokens: seconds by executor and `COLD` or `WARM`.
        has_prefix_reuse: whether the engine took the second prompt's beginning from its cache.
        skipped: cases that are longer than the model's context.
        notes: what failed, and why.
    """

    model: BenchModel
    cases: list[Case]
    facts: dict[str, Facts] = field(default_factory=dict)
    rates: Measurements = field(default_factory=Measurements)
    read_rates: list[float] = field(default_factory=list)
    first_tokens: Measurements = field(default_factory=Measurements)
    has_prefix_reuse: bool = False
    first_prompt_tokens: int = 0
    served: ServedReport | None = None
    skipped: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ModelBench:
    """Measures one model."""

    def __init__(
        self, model: BenchModel, plan: BenchPlan, *, engines: Engines, served: ServedOptions, limits: ServerLimits
    ) -> None:
        """Nothing is started yet."""
        self._model = model
        self._plan = plan
        self._engines = engines
        self._served = served
        self._limits = limits
        cases, skipped = split_by_context(plan.cases(), model.context_tokens)
        if not cases:
            raise MeasurementError(f"{model.name}: nothing fits its context of {model.context_tokens} tokens")
        self._report = ModelReport(model, cases, skipped=skipped)

    def run(self, progress: Progress) -> ModelReport:
        """Start, measure, end.

        Raises:
            MeasurementError: an engine does not load the model.
        """
        with ExitStack() as stack:
            subjects = self._load(stack, progress)
            self._measure_rates(subjects, progress)
            self._report.facts = {label: subject.facts() for label, subject in subjects.items()}
            executors = [subjects[name] for name in self._engines.executors]
            self._measure_first_tokens(executors, progress)
            if self._served.plan is not None:
                self._report.served = self._measure_served(executors[0], self._served.plan, stack, progress)
        return self._report

    def _load(self, stack: ExitStack, progress: Progress) -> dict[str, Subject]:
        settings = self._load_settings()
        subjects: dict[str, Subject] = {}
        for name in self._engines.executors:
            progress.note(f"{self._model.name}: loading into {name}")
            worker = stack.enter_context(start_memra(name, settings))
            subjects[name] = load_memra(worker, name, cases=self._report.cases, settings=settings)
        if self._engines.llama_python is not None:
            progress.note(f"{self._model.name}: loading into {LLAMA_CPP}")
            worker = stack.enter_context(start_llama(self._engines.llama_python))
            subjects[LLAMA_CPP] = load_llama(worker, settings=settings)
        return subjects

    def _load_settings(self) -> LoadSettings:
        served = self._served.plan
        engine_tokens = self._plan.prefill_tokens + _PROMPT_ROOM_TOKENS
        if served is not None:
            each = _PROMPT_ROOM_TOKENS + served.max_new_tokens
            engine_tokens = max(engine_tokens, min(max(served.num_clients), self._limits.max_rows) * each)
        return LoadSettings(
            path=self._model.path,
            vocab_size=self._model.vocab_size,
            num_threads=self._engines.num_threads,
            chunk_tokens=self._limits.chunk_tokens,
            max_rows=self._limits.max_rows,
            engine_tokens=engine_tokens,
        )

    def _measure_rates(self, subjects: Mapping[str, Subject], progress: Progress) -> None:
        """All cases and the memory's read speed, in the same rounds."""
        cases = {case.label: case for case in self._report.cases}
        read_test = ReadTest(self._engines.num_threads)

        def measure(subject: str, case: str) -> float | None:
            try:
                return subjects[subject].measure(cases[case])
            except MeasurementError as error:
                self._note_failure(case, error)
                return None

        def read_memory(number: int) -> None:
            rate = read_test.measure()
            if number:
                self._report.read_rates.append(rate)

        progress.expect((self._plan.rounds + 1) * len(cases) * len(subjects))
        self._report.rates = measure_in_turns(
            list(subjects),
            list(cases),
            rounds=self._plan.rounds,
            measure=measure,
            announce=self._announce(progress),
            begin_round=read_memory,
        )

    def _note_failure(self, case: str, error: MeasurementError) -> None:
        """Keep the first of equal complaints: a dead engine has the same for every case."""
        if not any(note.endswith(error.message) for note in self._report.notes):
            self._report.notes.append(f"{case}: {error.message}")

    def _measure_first_tokens(self, executors: Sequence[Subject], progress: Progress) -> None:
        progress.expect((self._plan.rounds + 1) * len(executors))
        for number in range(self._plan.rounds + 1):
            for subject in executors:
                self._announce(progress)(f"first token, {subject.label}, round {number}/{self._plan.rounds}")
                reply = subject.worker.call(
                    "first_token", num_tokens=self._plan.prefill_tokens, start=1 + number * _START_STRIDE
                )
                self._report.first_prompt_tokens = reply["cold"]["num_prompt_tokens"]
                self._report.has_prefix_reuse = reply["warm"]["num_cached_tokens"] > 0
                if number:
                    self._report.first_tokens.add(subject.label, COLD, reply["cold"]["elapsed_s"])
                    self._report.first_tokens.add(subject.label, WARM, reply["warm"]["elapsed_s"])

    def _measure_served(self, bare: Subject, plan: ServedPlan, stack: ExitStack, progress: Progress) -> ServedReport:
        progress.note(f"{self._model.name}: starting a server")
        environ = thread_environment(self._engines.num_threads)
        server = stack.enter_context(
            ServerProcess(self._model.name, self._model.path, environ=environ, arguments=self._served.arguments)
        )
        bare_backend = str(bare.backend)
        if server.backend != bare_backend:
            self._report.notes.append(
                f"the server runs on {server.backend}, the bare engine on {bare_backend}: the ratio compares executors"
            )
        client = make_load_client(Path(stack.enter_context(TemporaryDirectory())))
        targets = [ServedTarget(SERVED, Target.parse(server.url), self._model.name, self._served.api_key)]
        if self._served.other_url is not None:
            other = Target.parse(self._served.other_url)
            targets.append(ServedTarget("other", other, self._model.name, self._served.other_key))
        bench = ServedBench(plan, client=client, bare=bare.worker, servers=targets)
        progress.expect(bench.num_steps)
        return bench.run(self._announce(progress))

    def _announce(self, progress: Progress) -> Callable[[str], None]:
        return lambda text: progress.step(f"{self._model.name}: {text}")
