"""One model measured: the server's start, then every engine that was asked for, section by section.

The processes of all engines run side by side and take turns; they are started here and ended here. Refuses to know
arguments and tables.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from memra.cli_bench.bench_request import BenchModel, Engines, Sections, ServerOptions
from memra.cli_bench.busy_bench import BusyBench, BusyReport
from memra.cli_bench.cases import BenchPlan, DecodeCase, PrefillCase, split_by_context
from memra.cli_bench.error_bench import NUM_POSITIONS, ErrorBench, ErrorReport
from memra.cli_bench.load_client import Target, make_load_client
from memra.cli_bench.model_report import COLD, WARM, ModelReport
from memra.cli_bench.progress import Progress
from memra.cli_bench.served_bench import SERVED, ServedBench, ServedPlan, ServedReport, ServedTarget
from memra.cli_bench.server_process import ServerProcess
from memra.cli_bench.spinner import Spinner
from memra.cli_bench.spread import measure_in_turns
from memra.cli_bench.start_bench import StartBench, StartReport
from memra.cli_bench.subjects import (
    LLAMA_CPP,
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

REFERENCE = "torch"
"""The executor that errors are measured from."""
_START_STRIDE = 1_000_003
"""Between the numbers that two cold prompts begin with: they share no prefix."""
_PROMPT_ROOM_TOKENS = 128
"""More than a prompt of `make_prompts` takes in any tokenizer."""


_Part = TypeVar("_Part")


class ModelBench:
    """Measures one model."""

    def __init__(
        self, model: BenchModel, plan: BenchPlan, *, engines: Engines, sections: Sections, server: ServerOptions
    ) -> None:
        """Nothing is started yet.

        Raises:
            MeasurementError: not one case fits the model's context.
        """
        self._model = model
        self._plan = plan
        self._engines = engines
        self._sections = sections
        self._server = server
        cases, skipped = split_by_context(plan.cases(), model.context_tokens) if sections.speed else ([], [])
        if sections.speed and not cases:
            raise MeasurementError(f"{model.name}: nothing fits its context of {model.context_tokens} tokens")
        self._report = ModelReport(model, cases, skipped=skipped)
        self._one_row = DecodeCase(rows=1, depth=0, num_tokens=plan.decode_tokens)

    def run(self, progress: Progress) -> ModelReport:
        """Start, measure, end.

        Raises:
            MeasurementError: an engine does not load the model.
        """
        if self._sections.start:  # alone: pages that engines map too would count as shared
            self._report.start = self._attempt("start", lambda: self._measure_start(progress))
        if self._sections.needs_engines:
            with ExitStack() as stack:
                self._measure_engines(stack, progress)
        return self._report

    def _measure_engines(self, stack: ExitStack, progress: Progress) -> None:
        subjects = self._load(stack, progress)
        executors = [subjects[name] for name in self._engines.executors]
        if self._sections.speed:
            self._measure_rates(subjects, progress)
        self._report.facts = {label: subject.facts() for label, subject in subjects.items()}
        if self._sections.speed:
            self._measure_first_tokens(executors, progress)
        if self._sections.busy:
            self._report.busy = self._measure_busy(subjects, progress)
        if (plan := self._sections.served) is not None:
            self._report.served = self._attempt(
                "served", lambda: self._measure_served(executors[0], plan, stack, progress)
            )
        if self._sections.errors:  # last, because the reference takes memory
            self._report.errors = self._attempt("errors", lambda: self._measure_errors(subjects, stack, progress))

    def _attempt(self, section: str, measure: Callable[[], _Part]) -> _Part | None:
        """A section that fails is said so, and does not take with it what was measured before."""
        try:
            return measure()
        except MeasurementError as error:
            self._report.notes.append(f"{section}: {error.message}")
            return None

    def _load(self, stack: ExitStack, progress: Progress) -> dict[str, Subject]:
        settings = self._load_settings()
        subjects: dict[str, Subject] = {}
        for name in self._engines.executors:
            subjects[name] = self._load_executor(name, settings, stack, progress)
        if self._engines.llama_python is not None:
            progress.note(f"{self._model.name}: loading into {LLAMA_CPP}")
            worker = stack.enter_context(start_llama(self._engines.llama_python))
            subjects[LLAMA_CPP] = load_llama(worker, settings=settings)
        return subjects

    def _load_executor(self, name: str, settings: LoadSettings, stack: ExitStack, progress: Progress) -> Subject:
        progress.note(f"{self._model.name}: loading into {name}")
        worker = stack.enter_context(start_memra(name, settings))
        cases = [*self._report.cases, self._one_row, PrefillCase(NUM_POSITIONS)]
        return load_memra(worker, name, cases=cases, settings=settings)

    def _load_settings(self) -> LoadSettings:
        served = self._sections.served
        engine_tokens = self._plan.prefill_tokens + _PROMPT_ROOM_TOKENS
        if served is not None:
            each = _PROMPT_ROOM_TOKENS + served.max_new_tokens
            engine_tokens = max(engine_tokens, min(max(served.num_clients), self._server.max_rows) * each)
        return LoadSettings(
            path=self._model.path,
            vocab_size=self._model.vocab_size,
            num_threads=self._engines.num_threads,
            chunk_tokens=self._server.chunk_tokens,
            max_rows=self._server.max_rows,
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
                try:
                    self._measure_first_token(subject, number)
                except MeasurementError as error:
                    self._note_failure("first token", error)

    def _measure_first_token(self, subject: Subject, number: int) -> None:
        start = 1 + number * _START_STRIDE
        reply = subject.worker.call("first_token", num_tokens=self._plan.prefill_tokens, start=start)
        self._report.first_prompt_tokens = reply["cold"]["num_prompt_tokens"]
        self._report.has_prefix_reuse = reply["warm"]["num_cached_tokens"] > 0
        if number:
            self._report.first_tokens.add(subject.label, COLD, reply["cold"]["elapsed_s"])
            self._report.first_tokens.add(subject.label, WARM, reply["warm"]["elapsed_s"])

    def _measure_start(self, progress: Progress) -> StartReport:
        bench = StartBench(
            self._start_server,
            environ=self._server_environment(),
            rounds=self._plan.rounds,
            page_tokens=self._model.page_tokens,
        )
        progress.expect(bench.num_steps)
        return bench.run(self._announce(progress))

    def _server_environment(self) -> Mapping[str, str]:
        """The bare engine's threads and executor, so that the two differ by the server alone."""
        return thread_environment(self._engines.num_threads) | {"MEMRA_EXECUTOR": self._engines.executors[0]}

    def _start_server(self, environ: Mapping[str, str]) -> ServerProcess:
        return ServerProcess(
            self._model.name,
            self._model.path,
            environ=environ,
            arguments=self._server.arguments,
            api_key=self._server.api_key,
        )

    def _measure_busy(self, subjects: Mapping[str, Subject], progress: Progress) -> BusyReport:
        bench = BusyBench(
            {label: partial(subject.step_times, self._one_row) for label, subject in subjects.items()},
            keep_busy=Spinner,
            rounds=self._plan.rounds,
            num_steps=self._one_row.num_tokens,
        )
        progress.expect(bench.num_announced)
        return bench.run(self._announce(progress))

    def _measure_served(self, bare: Subject, plan: ServedPlan, stack: ExitStack, progress: Progress) -> ServedReport:
        progress.note(f"{self._model.name}: starting a server")
        server = stack.enter_context(self._start_server(self._server_environment()))
        bare_backend = str(bare.backend)
        if server.backend != bare_backend:
            self._report.notes.append(
                f"the server runs on {server.backend}, the bare engine on {bare_backend}: the ratio compares executors"
            )
        client = make_load_client(Path(stack.enter_context(TemporaryDirectory())))
        targets = [ServedTarget(SERVED, Target.parse(server.url), self._model.name, self._server.api_key)]
        if self._sections.other_url is not None:
            other = Target.parse(self._sections.other_url)
            targets.append(ServedTarget("other", other, self._model.name, self._sections.other_key))
        bench = ServedBench(plan, client=client, bare=bare.worker, servers=targets)
        progress.expect(bench.num_steps)
        return bench.run(self._announce(progress))

    def _measure_errors(self, subjects: Mapping[str, Subject], stack: ExitStack, progress: Progress) -> ErrorReport:
        truth = subjects.get(REFERENCE)
        if truth is None:
            truth = self._load_executor(REFERENCE, self._load_settings(), stack, progress)
        bench = ErrorBench(
            truth.write_logits,
            {label: subject.write_logits for label, subject in subjects.items() if subject is not truth},
            backend=truth.backend,
            vocab_size=self._model.vocab_size,
            folder=Path(stack.enter_context(TemporaryDirectory())),
        )
        progress.expect(bench.num_steps)
        return bench.run(truth.encode, self._announce(progress))

    def _announce(self, progress: Progress) -> Callable[[str], None]:
        return lambda text: progress.step(f"{self._model.name}: {text}")
