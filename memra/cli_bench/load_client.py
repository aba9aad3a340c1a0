"""The client that drives a server: compiled from `load_client.cpp` where there is a compiler, threads of Python if not.

Knows HTTP requests as bytes; refuses to know what is asked. Which of the two ran is part of every report, because a
Python client on the server's processors takes part of what it measures.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from memra.cli_bench.streams import Stream, read_streams
from memra.errors import MeasurementError

_SOURCE = Path(__file__).with_name("load_client.cpp")
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Target:
    """A server without encryption: host name, port, and the path before `/completions`."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> "Target":
        """Read `http://host:port[/v1]`.

        Raises:
            MeasurementError: it is something else.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise MeasurementError(f"{url}: the load client speaks plain HTTP only; give http://HOST:PORT/v1")
        return cls(parts.hostname, parts.port or 80, parts.path.rstrip("/") or "/v1")

    def request(self, body: Mapping[str, Any], *, api_key: str | None, route: str = "completions") -> bytes:
        """One completion request, or another `route`'s, ready to be sent."""
        content = json.dumps(body).encode()
        authorization = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        head = (
            f"POST {self.path}/{route} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{authorization}"
            f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


class LoadClient(Protocol):
    """Opens streams together and waits for all of them."""

    @property
    def kind(self) -> str:
        """`compiled` or `Python threads`."""
        ...

    def drive(self, target: Target, requests: Sequence[bytes]) -> list[Stream]:
        """Send all requests at once, a connection each.

        Raises:
            MeasurementError: the server cannot be reached.
        """
        ...


def make_load_client(folder: Path) -> LoadClient:
    """Compile the client into `folder`, or fall back to Python where there is no compiler or it fails."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return ThreadClient()
    binary = folder / "load_client"
    command = [compiler, "-std=c++17", "-O2", str(_SOURCE), "-o", str(binary)]
    done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603  (our own source)
    return CompiledClient(binary, folder) if done.returncode == 0 else ThreadClient()


class CompiledClient:
    """One process, one thread, no interpreter."""

    kind = "compiled"

    def __init__(self, binary: Path, folder: Path) -> None:
        """Use a compiled client; requests are passed by a file in `folder`."""
        self._binary = binary
        self._file = folder / "requests"

    def drive(self, target: Target, requests: Sequence[bytes]) -> list[Stream]:
        """See `LoadClient`."""
        self._file.write_bytes(b"".join(b"%d\n%s" % (len(request), request) for request in requests))
        try:
            address = socket.getaddrinfo(target.host, target.port, family=socket.AF_INET)[0][4][0]
        except OSError as error:
            raise MeasurementError(f"{target.host}: not found: {error.strerror or error}") from error
        command = [str(self._binary), str(address), str(target.port), str(self._file)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  (our own program)
        if done.returncode:
            raise MeasurementError(f"{target.host}:{target.port}: {done.stderr.strip()}")
        return read_streams(json.loads(done.stdout))


class ThreadClient:
    """A thread a stream; slower, and at the cost of the server beside it."""

    kind = "Python threads"

    def drive(self, target: Target, requests: Sequence[bytes]) -> list[Stream]:
        """See `LoadClient`."""
        started_at = time.perf_counter()
        with ThreadPoolExecutor(len(requests)) as pool:
            try:
                return list(pool.map(lambda request: _read_one(target, request, started_at), requests))
            except OSError as error:
                raise MeasurementError(f"{target.host}:{target.port}: {error.strerror or error}") from error


def _read_one(target: Target, request: bytes, started_at: float) -> Stream:
    head, _, content = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    connection = HTTPConnection(target.host, target.port, timeout=_LIMIT_S)
    try:
        headers = dict(line.split(": ", 1) for line in lines if not line.startswith(("Host", "Content-Length")))
        connection.request("POST", first.split()[1], content, headers)
        reply = connection.getresponse()
        times: list[float] = []
        num_tokens, is_done = None, False
        for line in reply:
            if not line.startswith(b"data:"):
                continue
            is_done = b"[DONE]" in line
            if is_done or _holds_text(line):
                times.append(time.perf_counter() - started_at)
            if is_done:
                break
            num_tokens = _read_usage(line, num_tokens)
        return Stream(reply.status, is_done, num_tokens, tuple(times))
    finally:
        connection.close()


def _holds_text(line: bytes) -> bool:
    choices = json.loads(line[5:]).get("choices") or [{}]
    return bool(choices[0].get("text") or choices[0].get("delta", {}).get("content"))


def _read_usage(line: bytes, before: int | None) -> int | None:
    usage = json.loads(line[5:]).get("usage")
    return usage["completion_tokens"] if usage else before
