"""A process that keeps one processor busy: what a step meets on a machine that does other work too.

Both ends are here. The child spins on one processor until it is ended, or until the process that started it is gone, so
that nothing is left behind however the benchmark ends. Refuses to know what is measured beside it.
"""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from memra.errors import MeasurementError

_GREETING = "spinning\n"
_TURNS = 100_000
"""Turns between two looks at the parent: some milliseconds."""


class Spinner:
    """A busy process; use as a context manager. It spins from the moment that it was entered."""

    def __init__(self) -> None:
        """Start it on the last processor that this process may use.

        Raises:
            MeasurementError: it did not begin to spin.
        """
        path = os.pathsep.join(entry for entry in sys.path if entry)
        command = [sys.executable, "-m", "memra.cli_bench.spinner", str(os.getpid()), str(_last_processor())]
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        if self._process.stdout is None or self._process.stdout.readline() != _GREETING:
            self.close()
            raise MeasurementError("the process that keeps a processor busy did not start")

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def close(self) -> None:
        """End it; may be called twice."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _last_processor() -> int:
    """One that the measured engine uses too: its threads are as many as the processors."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def spin(parent: int, processor: int) -> None:
    """Keep a processor busy while the parent lives."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {processor})
    sys.stdout.write(_GREETING)
    sys.stdout.flush()
    while os.getppid() == parent:
        for _ in range(_TURNS):
            pass


if __name__ == "__main__":
    spin(int(sys.argv[1]), int(sys.argv[2]))
