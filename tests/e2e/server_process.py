"""The real program in a process of its own, started as a user would start it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

import httpx
import pytest

REPOSITORY = Path(__file__).parents[2]
START_LIMIT_S = 240.0
STOP_LIMIT_S = 60.0
METRICS_TRIES = 200


@dataclass
class Server:
    """A running `memra run`: where it listens, and what it has said so far."""

    process: "subprocess.Popen[str]"
    lines: "Queue[str]"
    said: list[str] = field(default_factory=list)
    address: str = ""
    metrics_token: str | None = None

    @property
    def url(self) -> str:
        return self.address

    def wait_for(self, words: str, *, within_s: float = START_LIMIT_S) -> str:
        """Read what the server says until a line holds the words."""
        while True:
            try:
                line = self.lines.get(timeout=within_s)
            except Empty:
                pytest.fail(f"no {words!r} in {within_s} s; the server said:\n{''.join(self.said)}")
            if line == "":
                pytest.fail(f"the server ended with {self.process.wait()}; it said:\n{''.join(self.said)}")
            self.said.append(line)
            if words in line:
                return line

    def stop(self) -> int:
        """Ask for the drain and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_LIMIT_S)

    def end(self) -> None:
        """Drain a server that still runs, which must end cleanly, and let go of the process."""
        if self.process.poll() is None:
            assert self.stop() == 0, self.output()
        self.process.wait(timeout=STOP_LIMIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def output(self) -> str:
        """Everything the server has said; call after it ended."""
        while (line := self.lines.get(timeout=STOP_LIMIT_S)) != "":
            self.said.append(line)
        return "".join(self.said)

    def metrics(self) -> dict[str, float]:
        headers = {} if self.metrics_token is None else {"Authorization": f"Bearer {self.metrics_token}"}
        return httpx.get(f"{self.url}/metrics", headers=headers, timeout=30).raise_for_status().json()

    def wait_for_metrics(self, **expected: float) -> None:
        """Ask until the counters are as expected; a busy worker answers with its last known ones."""
        for _ in range(METRICS_TRIES):
            metrics = self.metrics()
            if all(metrics[name] == value for name, value in expected.items()):
                return
        pytest.fail(f"expected {expected}, got {metrics}")


Start = Callable[..., Server]


def _environment(extra: dict[str, str] | None) -> dict[str, str]:
    """Return the test's environment without its own settings; a PYTHONPATH in `extra` comes first."""
    extra = extra or {}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMRA_")}
    roots = [extra.get("PYTHONPATH"), str(REPOSITORY), str(REPOSITORY / "kernels"), os.environ.get("PYTHONPATH")]
    return kept | extra | {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "PYTHONUNBUFFERED": "1"}


def launch(
    *arguments: str, environ: dict[str, str] | None = None, wait: bool = True, python: Path | str = sys.executable
) -> Server:
    """Start `memra run` on a free port; with `wait`, return when it listens."""
    process = subprocess.Popen(
        [python, "-m", "memra", "run", "--address", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(environ),
    )
    server = Server(process, Queue(), metrics_token=(environ or {}).get("MEMRA_METRICS_TOKEN"))
    threading.Thread(target=_copy, args=(process, server.lines), daemon=True).start()
    if wait:
        server.address = server.wait_for("listening on").split()[-1]
    return server


def _copy(process: "subprocess.Popen[str]", lines: "Queue[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def run_to_end(*arguments: str, environ: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `memra` with arguments that make it end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "memra", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env=_environment(environ),
    )
