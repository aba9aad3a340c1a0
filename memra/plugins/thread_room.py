"""The threads that one plugin may use at once, so that one that hangs cannot use up the others'.

Trade: runs a plain function in a worker thread for a task of trio, and leaves the thread behind when the task must go
on. A thread that was left keeps its place until it returns; when all places are taken by such threads, the plugin is
stuck and fails at once rather than in its time. Refuses to know hooks.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import trio

T = TypeVar("T")

NUM_THREADS = 8
"""More than a database on the same machine has answers under way for; few enough to leave behind."""


class AllStuckError(Exception):
    """Every thread of the plugin was given up on, and none has returned."""


class ThreadRoom:
    """Places for threads; belongs to one run of trio."""

    def __init__(self, num_threads: int = NUM_THREADS) -> None:
        """Take the number of places."""
        self._limiter = trio.CapacityLimiter(num_threads)
        self._lock = threading.Lock()
        self._num_left = 0

    @property
    def num_left(self) -> int:
        """Threads that were left behind and have not returned."""
        return self._num_left

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, waiting for a place if need be; being cancelled leaves the thread behind.

        Raises:
            AllStuckError: there will be no place.
        """
        if self._num_left >= self._limiter.total_tokens:
            raise AllStuckError
        errand = _Errand()

        def work() -> T:
            errand.is_begun = True
            try:
                return function()
            finally:
                self._note_return(errand)

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        except trio.Cancelled:
            self._note_leaving(errand)
            raise

    def _note_leaving(self, errand: "_Errand") -> None:
        with self._lock:
            if errand.is_begun and not errand.is_done:
                errand.is_left = True
                self._num_left += 1

    def _note_return(self, errand: "_Errand") -> None:
        with self._lock:
            errand.is_done = True
            self._num_left -= errand.is_left


@dataclass(slots=True)
class _Errand:
    """What the task and its thread tell each other; read and written under the room's lock."""

    is_begun: bool = False
    is_done: bool = False
    is_left: bool = False
