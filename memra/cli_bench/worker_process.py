"""The parent's side of a measuring process: starts it, asks it one thing at a time, and ends it.

Refuses to know what is measured. `worker_loop` is the other end.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from memra.errors import MeasurementError

_LAST_WORDS_CHARS = 2000
_END_S = 10.0


def thread_environment(num_threads: int) -> dict[str, str]:
    """The environment in which memra's engines are measured, served or bare: the same threads for all.

    Torch takes its threads from OpenMP's variable, and waits at its barriers as the server makes it wait.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    own = {"MEMRA_THREADS": str(num_threads)}
    return os.environ | own | {"OMP_NUM_THREADS": str(num_threads), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path}


def memra_command() -> list[str]:
    """How a worker with memra's own executors is started."""
    return [sys.executable, "-m", "memra.cli_bench.memra_worker"]


def llama_command(python: str) -> list[str]:
    """How a worker with llama.cpp is started in the Python that has it."""
    folder = Path(__file__).parent
    return [python, str(folder / "worker_loop.py"), str(folder / "llama_worker.py")]


class WorkerProcess:
    """One measuring process; use as a context manager."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], label: str) -> None:
        """Start it.

        Args:
            command: program and arguments.
            environ: its whole environment.
            label: names it in errors.

        Raises:
            MeasurementError: it cannot be started.
        """
        self.label = label
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed by close)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own script)
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=dict(environ)
            )
        except OSError as error:
            self._log.close()
            raise MeasurementError(f"{label}: {command[0]} cannot be started: {error.strerror or error}") from error

    def call(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Ask, wait, and return the reply.

        Raises:
            MeasurementError: the worker refused or died; with its own words.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise MeasurementError(f"{self.label}: has no pipes")
        try:
            self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise MeasurementError(f"{self.label}: {self._describe_end()}: {self._last_words()}")
        reply = cast("dict[str, Any]", json.loads(line))
        if "error" in reply:
            raise MeasurementError(f"{self.label}: {reply['error']}")
        return reply

    def close(self) -> None:
        """End the process; may be called twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what a dead worker never read
                    pipe.close()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _describe_end(self) -> str:
        code = self._process.wait()
        return f"ended with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-_LAST_WORDS_CHARS:].strip() or "it said nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
