"""The server's handles, for a plugin that lives on the asyncio loop.

Trade: each coroutine of the handles becomes one that is awaited on asyncio and runs on trio. Refuses to know what the
handles do. Once the context has ended, the translated handles raise `HandlesClosedError`, as the others do.
"""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import outcome
import trio

from memra.plugins.handles import HandlesClosedError, RuntimeHandles


@contextlib.asynccontextmanager
async def handles_for_asyncio(handles: RuntimeHandles) -> AsyncIterator[RuntimeHandles]:
    """Translate the handles while the context lasts; entered on trio."""
    async with trio.open_nursery() as nursery:
        bridge = _Bridge(nursery)
        try:
            yield cast("RuntimeHandles", _AsyncioHandles(handles, bridge))
        finally:
            bridge.is_closed = True
            nursery.cancel_scope.cancel()


class _Bridge:
    """Runs coroutine functions in a nursery of trio for whoever awaits them on an asyncio loop."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self.is_closed = False

    def tell(self, function: Callable[..., object], *args: Any) -> None:
        """Call a plain function on trio, without waiting for it."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *args)

    async def run(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine function on trio; being cancelled cancels it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[outcome.Outcome[Any]] = loop.create_future()
        scope = trio.CancelScope()

        def start() -> None:
            if self.is_closed:
                _answer(loop, answer, outcome.Error(HandlesClosedError("the server has ended")))
            else:
                self._nursery.start_soon(self._run, function, scope, functools.partial(_answer, loop, answer))

        try:
            self._token.run_sync_soon(start)
        except trio.RunFinishedError:
            raise HandlesClosedError("the server has ended") from None
        try:
            return (await answer).unwrap()
        except asyncio.CancelledError:
            self.tell(scope.cancel)
            raise

    async def _run(
        self,
        function: Callable[[], Coroutine[Any, Any, Any]],
        scope: trio.CancelScope,
        answer: Callable[[outcome.Outcome[Any]], None],
    ) -> None:
        result: outcome.Outcome[Any] = outcome.Error(HandlesClosedError("the server has ended"))
        try:
            with scope:
                result = outcome.Value(await function())
        except Exception as error:  # noqa: BLE001  (it belongs to whoever awaits on the other loop)
            result = outcome.Error(error)
        finally:
            answer(result)


def _answer(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", result: outcome.Outcome[Any]) -> None:
    def settle() -> None:
        if not answer.done():
            answer.set_result(result)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


class _AsyncioHandles:
    """Looks like `RuntimeHandles`; its coroutines are awaited on asyncio."""

    def __init__(self, handles: RuntimeHandles, bridge: _Bridge) -> None:
        self._handles = handles
        self._bridge = bridge

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._handles, name)
        if not callable(part):
            return part
        if not inspect.iscoroutinefunction(part):
            return functools.partial(self._bridge.tell, part)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._bridge.run(functools.partial(part, *args, **kwargs))

        return call
