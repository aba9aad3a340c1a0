"""One asyncio loop in a thread of its own, for plugins that say `memra_async = "asyncio"`.

Trade: runs coroutines there for tasks of trio. It starts with the first of them and ends with the server. Refuses to
know plugins and hooks. A coroutine whose asker leaves is cancelled. The thread is a daemon: a coroutine that blocks it
holds up other plugins of that kind, and not the end of the process.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class AsyncioThread:
    """The thread; `run` is called on trio, by any number of tasks."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        self._ended = threading.Event()

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and return its result.

        Args:
            make: called on the loop's thread.

        Raises:
            RuntimeError: the thread was stopped.
            Exception: whatever the coroutine raises; a `concurrent.futures.CancelledError` where it was cancelled.
        """
        loop = self._running_loop()
        token = trio.lowlevel.current_trio_token()
        done = trio.Event()

        async def call() -> T:
            return await make()

        def wake(_: object) -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        answer = asyncio.run_coroutine_threadsafe(call(), loop)
        answer.add_done_callback(wake)
        try:
            await done.wait()
        except trio.Cancelled:
            answer.cancel()
            raise
        return answer.result()

    def stop(self, *, within_s: float) -> bool:
        """Cancel what runs and end the thread; false when it did not end in time. Blocks."""
        with self._lock:
            loop, self._loop = self._loop, None
            self._is_stopped = True
        if loop is None:
            return True
        loop.call_soon_threadsafe(loop.stop)
        return self._ended.wait(within_s)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_stopped:
                raise RuntimeError("the server has ended, and its asyncio loop with it")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._serve, args=(self._loop,), name="memra-asyncio", daemon=True).start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            self._ended.set()
