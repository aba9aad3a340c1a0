"""Where the run stands: ready, and later stopped with an exit code. Lifecycle writes it, the composition root waits.

Plain values and two events of the trio thread; the first reason to stop is the one that counts.
"""

import trio

from memra.errors import StartupError

EXIT_STARTUP_FAILED = 1
EXIT_WORKER_LOST = 70
"""EX_SOFTWARE of sysexits.h: an internal failure, so that a service manager restarts the process."""


class RunState:
    """One for the life of the server; made in the trio thread."""

    def __init__(self) -> None:
        self._ready = trio.Event()
        self._draining = trio.Event()
        self._stopped = trio.Event()
        self._exit_code = 0
        self._problem: str | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether there is a reason to stop."""
        return self._stopped.is_set()

    @property
    def is_draining(self) -> bool:
        """Whether the run is on its way down, or has ended."""
        return self._draining.is_set()

    @property
    def is_drained(self) -> bool:
        """Whether the run ends in good order, with its worker alive."""
        return self._stopped.is_set() and self._exit_code == 0

    def mark_ready(self) -> None:
        """The worker takes prompts; later calls change nothing."""
        self._ready.set()

    def mark_draining(self) -> None:
        """The way down has begun; later calls change nothing."""
        self._draining.set()

    def stop(self, exit_code: int, problem: str | None = None) -> None:
        """Give the reason to stop; later ones are ignored."""
        if not self._stopped.is_set():
            self._exit_code = exit_code
            self._problem = problem
            self._stopped.set()
            self._draining.set()
            self._ready.set()

    async def wait_until_ready(self) -> bool:
        """Wait for the weights; false when a stop was asked for meanwhile.

        Raises:
            StartupError: the worker could not be started.
        """
        await self._ready.wait()
        if self._stopped.is_set() and self._exit_code == EXIT_STARTUP_FAILED:
            raise StartupError(self._problem or "the model worker could not be started")
        return not self._stopped.is_set()

    async def wait_until_draining(self) -> None:
        """Wait for the way down to begin."""
        await self._draining.wait()

    async def wait_until_stopped(self) -> int:
        """Wait for a reason to stop and return the exit code: 0 after a drain, 70 when the worker is lost."""
        await self._stopped.wait()
        return self._exit_code
