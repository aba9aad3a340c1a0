"""The answer to an ask: a pykka future that trio and asyncio tasks can await without a thread.

pykka's own `await` blocks the event loop; here a callback wakes the task instead. A blocking `get()` in the thread of a
trio run would stop everything, so it is refused. Made by the actors' base whenever somebody asks.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

import pykka
import trio

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class TrioFuture(pykka.ThreadingFuture[Any]):
    """Any thread may set it, and any thread but trio's may block on it."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Whether the answer is there."""
        return self._result is not None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call once when the answer is there, on the thread that gives it; at once when it is there already."""
        with self._condition:
            if self._result is None:
                self._callbacks.append(callback)
                return
        callback()

    def set(self, value: Any | None = None) -> None:
        """Give the answer; once."""
        super().set(value)
        self._call_back()

    def set_exception(self, exc_info: ExcInfo | None = None) -> None:
        """Give an error as the answer; the one that is being handled when none is named."""
        super().set_exception(exc_info)
        self._call_back()

    def get(self, *, timeout: float | None = None) -> Any:
        """Block until the answer is there.

        Raises:
            RuntimeError: called in the thread of a trio run; await the future there.
        """
        if not self.is_done and trio.lowlevel.in_trio_run():
            raise RuntimeError("a blocking get() would stop the trio loop; await the future")
        return super().get(timeout=timeout)

    def __await__(self) -> Generator[Any, Any, Any]:
        """Wait for the answer; its error is raised here. Cancelling leaves the asked actor alone, unlike `ask()`.

        Raises:
            TypeError: the future was made by `map()`, `join()` or `ActorRef.stop()`, which can only block.
        """
        if self._get_hook is not None:
            raise TypeError("this future can only block; await the one that ask() returned, or stop_actor()")
        return self._answer().__await__()

    async def _answer(self) -> Any:
        if not trio.lowlevel.in_trio_task():
            await self._wait_in_asyncio()
        elif self.is_done:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait_in_trio()
        return super().get()

    async def _wait_in_trio(self) -> None:
        done = trio.Event()
        token = trio.lowlevel.current_trio_token()
        thread = threading.get_ident()

        def wake() -> None:
            if threading.get_ident() == thread:
                done.set()
                return
            with contextlib.suppress(trio.RunFinishedError):  # nobody is left to wake
                token.run_sync_soon(done.set)

        self.add_done_callback(wake)
        await done.wait()

    async def _wait_in_asyncio(self) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to wake
                loop.call_soon_threadsafe(done.set)

        self.add_done_callback(wake)
        await done.wait()

    def _call_back(self) -> None:
        with self._condition:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
