"""A `memra run` of one model in a process of its own, as a user would start it, on a free port.

Knows how the server greets and how it is told to stop; refuses to know what it is asked.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from memra.errors import MeasurementError

_STOP_S = 40.0
"""More than the server's drain."""
_GREETING = "listening on "
_LAST_WORDS_CHARS = 2000


class ServerProcess:
    """A running server; use as a context manager.

    Attributes:
        url: where it listens, without a path.
        backend: the executor that it says it loaded the model on; empty where it does not say.
    """

    def __init__(self, name: str, path: Path, *, environ: Mapping[str, str], arguments: tuple[str, ...] = ()) -> None:
        """Start it and wait until it listens; takes as long as loading the model.

        Args:
            name: under which the model is served.
            path: file or directory.
            environ: its whole environment; the shape of `/v1/completions` is set to OpenAI's here.
            arguments: further ones of `memra run`.

        Raises:
            MeasurementError: it ended instead, in its own words.
        """
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed by close)
        command = [sys.executable, "-m", "memra", "run", "--address", "127.0.0.1:0", "-m", f"{name}={path}", *arguments]
        own = {"MEMRA_COMPAT": "openai", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(  # noqa: S603  (our own program)
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env={**environ, **own}
        )
        try:
            self.url = self._wait_for_greeting()
            loaded = re.search(r"is loaded on (\S+)", self._read_log())
            self.backend = loaded.group(1) if loaded else ""
        except BaseException:
            self.close()
            raise

    def _wait_for_greeting(self) -> str:
        for line in self._process.stdout or ():
            if _GREETING in line:
                return line.partition(_GREETING)[2].strip()
        words = self._read_log()[-_LAST_WORDS_CHARS:].strip()
        raise MeasurementError(f"memra run ended with {self._process.wait()}: {words}")

    def _read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        """Drain it and wait for its end; may be called twice."""
        self._process.terminate()
        try:
            self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
