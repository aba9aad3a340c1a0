"""Who is measured: an engine in a process of its own, asked for one case at a time.

Knows the operations of the workers; refuses to know rounds and tables.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memra.cli_bench.cases import Case, DecodeCase, PrefillCase, make_token_ids, sequence_capacities
from memra.cli_bench.worker_process import WorkerProcess, llama_command, memra_command, thread_environment
from memra.errors import MeasurementError
from memra.types import TokenId

LLAMA_CPP = "llama-cpp"
"""Name of the other engine on the command line."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a loaded engine once, apart from its speed.

    Attributes:
        backend: executor or library, with its version.
        load_s: from the path to a model that is ready; libraries were imported before.
        file_bytes: of the model on disk; None where the engine does not say.
        weight_bytes_per_step: that a step of one row reads, as stored in the file.
        cache_bytes_per_token: keys and values of all layers.
        peak_bytes: most memory that was resident after the rounds, mapped files included.
        peak_beyond_bytes: the peak without the file's size and the keys and values in use: the interpreter, libraries,
            activations, and every second copy of the weights.
    """

    backend: str
    load_s: float
    file_bytes: int | None = None
    weight_bytes_per_step: int | None = None
    cache_bytes_per_token: int | None = None
    peak_bytes: int | None = None
    peak_beyond_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How the server would load the model.

    Attributes:
        path: file or directory.
        num_threads: threads of a step.
        chunk_tokens: prompt tokens of a step.
        max_rows: sequences at the same time.
        engine_tokens: tokens for which the engine needs room.
        vocab_size: tokens to draw from, the same for all engines.
    """

    path: Path
    num_threads: int
    chunk_tokens: int
    max_rows: int
    engine_tokens: int
    vocab_size: int


class Subject:
    """One engine with one model in one process."""

    def __init__(self, label: str, worker: WorkerProcess, loaded: Mapping[str, Any], *, vocab_size: int) -> None:
        """Take over a worker whose model is loaded.

        Args:
            label: heads its column.
            worker: closed by whoever started it.
            loaded: the reply to `load`.
            vocab_size: tokens to draw from, the same for all subjects.
        """
        self.label = label
        self.backend = str(loaded["backend"])
        self.worker = worker
        self._loaded = loaded
        self._vocab_size = vocab_size

    def measure(self, case: Case) -> float:
        """Tokens a second.

        Raises:
            MeasurementError: the engine cannot run the case.
        """
        match case:
            case PrefillCase():
                reply = self.worker.call("prefill", token_ids=self._make_sequences(case)[0])
            case DecodeCase():
                reply = self._decode(case)
        return case.num_timed_tokens / float(reply["elapsed_s"])

    def step_times(self, case: DecodeCase) -> Sequence[float]:
        """Seconds of every step.

        Raises:
            MeasurementError: the engine cannot run the case.
        """
        return [float(step_s) for step_s in self._decode(case)["step_s"]]

    def write_logits(self, token_ids: Sequence[TokenId], file: Path) -> None:
        """Have the logits of every token of one prompt written to a file, float32 `[N, V]`.

        Raises:
            MeasurementError: the engine cannot compute them.
        """
        self.worker.call("logits", token_ids=token_ids, file=str(file))

    def encode(self, text: str) -> Sequence[TokenId]:
        """The model's tokens of a text; asked of memra's engines only."""
        return list(self.worker.call("encode", text=text)["token_ids"])

    def facts(self) -> Facts:
        """What is known now; asked after the rounds, for the sake of the memory, which a dead worker cannot tell."""
        names = ("backend", "load_s", "file_bytes", "weight_bytes_per_step", "cache_bytes_per_token")
        known = {name: self._loaded[name] for name in names if name in self._loaded}
        try:
            peak = self.worker.call("memory")["peak_bytes"]
            return Facts(**known, peak_bytes=peak, peak_beyond_bytes=self._peak_beyond(peak))
        except MeasurementError:
            return Facts(**known)

    def _decode(self, case: DecodeCase) -> Mapping[str, Any]:
        sequences = self._make_sequences(case)
        return self.worker.call("decode", sequences=sequences, num_prompt_tokens=case.num_prompt_tokens)

    def _make_sequences(self, case: Case) -> list[list[TokenId]]:
        return [make_token_ids(index, case.end, vocab_size=self._vocab_size) for index in range(case.num_sequences)]

    def _peak_beyond(self, peak: int | None) -> int | None:
        if peak is None or "cache_bytes_per_token" not in self._loaded:
            return None
        cache_bytes = self.worker.call("cache_use")["num_tokens"] * self._loaded["cache_bytes_per_token"]
        return int(peak - self._loaded["file_bytes"] - cache_bytes)


def start_memra(executor: str, settings: LoadSettings) -> WorkerProcess:
    """Start a process for one of memra's executors."""
    return WorkerProcess(memra_command(), environ=thread_environment(settings.num_threads), label=f"memra {executor}")


def load_memra(worker: WorkerProcess, executor: str, *, cases: Sequence[Case], settings: LoadSettings) -> Subject:
    """Load a model into a started process.

    Raises:
        MeasurementError: in the executor's words.
    """
    loaded = worker.call(
        "load",
        path=str(settings.path),
        executor=executor,
        num_threads=settings.num_threads,
        capacities=sequence_capacities(cases),
        engine_tokens=settings.engine_tokens,
        chunk_tokens=settings.chunk_tokens,
        max_rows=settings.max_rows,
    )
    return Subject(executor, worker, loaded, vocab_size=settings.vocab_size)


def start_llama(python: str) -> WorkerProcess:
    """Start a process for llama.cpp in another Python.

    It gets the environment as it is, except for Python's path: its threads wait at barriers as they do by default,
    which is faster where it has the processors to itself, and their number is a parameter.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return WorkerProcess(llama_command(python), environ=environ, label=LLAMA_CPP)


def load_llama(worker: WorkerProcess, *, settings: LoadSettings) -> Subject:
    """Load a GGUF file into a started process.

    Raises:
        MeasurementError: the package is missing there, or it does not load the model.
    """
    loaded = worker.call("load", path=str(settings.path), num_threads=settings.num_threads)
    return Subject(LLAMA_CPP, worker, loaded, vocab_size=settings.vocab_size)
