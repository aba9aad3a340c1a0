"""A `memra run` of one model in a process of its own, as a user would start it, on a free port.

Knows how the server greets, when it may be sent work, how it is asked one thing, and how it is told to stop; refuses to
know what is measured.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from memra.cli_bench.front.processor_time import read_main_thread_s
from memra.cli_bench.process_memory import ProcessMemory, read_process_memory
from memra.errors import MeasurementError

_STOP_S = 40.0
"""More than the server's drain."""
_GREETING = "listening on "
_LAST_WORDS_CHARS = 2000
_OK = 200
_READY_S = 600.0
"""A model that takes longer to load is a failure."""
_POLL_S = 0.005
_ANSWER_S = 600.0


class ServerProcess:
    """A running server; use as a context manager.

    Attributes:
        url: where it listens, without a path.
        backend: the executor that it says it loaded the model on; empty where it does not say.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        environ: Mapping[str, str],
        arguments: tuple[str, ...] = (),
        api_key: str | None = None,
    ) -> None:
        """Start it and wait until it listens; takes as long as loading the model.

        Args:
            name: under which the model is served.
            path: file or directory.
            environ: its whole environment; the shape of `/v1/completions` is set to OpenAI's here.
            arguments: further ones of `memra run`.
            api_key: opens the server; None where it is open to all.

        Raises:
            MeasurementError: it ended instead, in its own words.
        """
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  (closed by close)
        command = [sys.executable, "-m", "memra", "run", "--address", "127.0.0.1:0", "-m", f"{name}={path}", *arguments]
        own = {"MEMRA_COMPAT": "openai", "PYTHONUNBUFFERED": "1"}
        self._name = name
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._started_at = time.perf_counter()
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
        raise MeasurementError(f"memra run ended with {self._process.wait()}: {self._last_words()}")

    def _read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def wait_until_ready(self) -> float:
        """Ask `/readyz` until it is green; returns the seconds since the process was started.

        Raises:
            MeasurementError: the server ended, or takes too long.
        """
        while True:
            status = self._request("GET", "/readyz")[0]
            elapsed_s = time.perf_counter() - self._started_at
            if status == _OK:
                return elapsed_s
            if elapsed_s > _READY_S:
                raise MeasurementError(f"memra run is not ready after {elapsed_s:.0f} s: {self._last_words()}")
            time.sleep(_POLL_S)

    def complete(self, prompt: str, *, max_tokens: int) -> int:
        """Have one prompt answered greedily; returns the tokens of the prompt and the answer.

        Raises:
            MeasurementError: the server refused or ended.
        """
        body = {"model": self._name, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        status, content = self._request("POST", "/v1/completions", body)
        if status != _OK:
            raise MeasurementError(f"memra run answered a completion with status {status}: {content[:200]!r}")
        return int(json.loads(content)["usage"]["total_tokens"])

    def read_memory(self) -> ProcessMemory | None:
        """What is resident in the server's process; None where the system does not tell."""
        return read_process_memory(self._process.pid)

    def read_loop_s(self) -> float | None:
        """Processor seconds of the server's loop so far; None where the system does not tell."""
        return read_main_thread_s(self._process.pid)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        connection = HTTPConnection(str(parts.hostname), parts.port, timeout=_ANSWER_S)
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, {**self._headers, "Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, HTTPException) as error:
            raise MeasurementError(f"memra run does not answer: {error}: {self._last_words()}") from error
        finally:
            connection.close()

    def _last_words(self) -> str:
        return self._read_log()[-_LAST_WORDS_CHARS:].strip()

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
