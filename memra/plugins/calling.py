"""How a plugin's function is called on behalf of a request: where it runs, how long it may take, and how it fails.

Trade: plain functions run in threads of the plugin's own, coroutine functions on trio, or on the asyncio loop where the
plugin says so. Refuses to know which hooks there are. Whatever goes wrong is logged once, with the plugin and the hook,
and becomes a `PluginFaultError`; an answer that the contract provides for, such as a refusal, passes through.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import trio

from memra.errors import PluginFaultError
from memra.plugins.asyncio_thread import AsyncioThread
from memra.plugins.plugin import Implementation, Plugin
from memra.plugins.thread_room import AllStuckError, ThreadRoom

T = TypeVar("T")

FAULTS = (Exception, SystemExit, asyncio.CancelledError)
"""What a plugin may raise without ending anything but its own call; trio's cancellation is not among it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to one plugin.

    Attributes:
        hook: what is asked, for the log.
        check: returns the answer, or raises an error; runs on trio.
        passes: exceptions that are answers.
    """

    plugin: Plugin
    hook: str
    function: Callable[..., Any]
    check: Callable[[Any], Any] = lambda answer: answer
    passes: tuple[type[BaseException], ...] = ()


class PluginCalls:
    """Calls plugins from any task of one run of trio."""

    def __init__(self, *, timeout_s: float) -> None:
        """Take the time that a call may take, seconds."""
        self._timeout_s = timeout_s
        self._asyncio = AsyncioThread()
        self._rooms: dict[str, ThreadRoom] = {}

    async def ask(self, ask: Ask, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call a function of a plugin and return its checked answer.

        Args:
            ask: whom, what, and which answers count.
            *args: for the function.
            timeout_s: in place of the usual time.
            **kwargs: for the function.

        Raises:
            PluginFaultError: it failed, took too long, or answered nonsense; the log names it.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            with trio.move_on_after(limit_s):
                return ask.check(await self._run(ask.plugin, functools.partial(ask.function, *args, **kwargs)))
        except ask.passes:
            raise
        except AllStuckError:
            log.error("plugin %s: %s: all its threads hang in earlier calls", ask.plugin.name, ask.hook)  # noqa: TRY400  (there is nothing to trace)
        except FAULTS:
            log.exception("plugin %s: %s failed", ask.plugin.name, ask.hook)
        else:
            log.error("plugin %s: %s took longer than %g s", ask.plugin.name, ask.hook, limit_s)
        raise fault()

    async def ask_hook(
        self, implementation: Implementation, arguments: Mapping[str, Any], *, check: Callable[[Any], T], **options: Any
    ) -> T:
        """Call one implementation of a hook with those arguments that it takes; otherwise as `ask`.

        Args:
            implementation: of the hook.
            arguments: all that the hook has, by name.
            check: as in `Ask`.
            **options: `passes` as in `Ask`, and `timeout_s`.
        """
        passes = options.pop("passes", ())
        ask = Ask(implementation.plugin, implementation.hook, implementation.function, check=check, passes=passes)
        return cast("T", await self.ask(ask, *implementation.select(arguments), **options))

    async def close(self, *, within_s: float) -> None:
        """End the asyncio loop, if there is one; a loop that hangs is left behind."""
        with trio.CancelScope(shield=True):
            stop = functools.partial(self._asyncio.stop, within_s=within_s)
            if not await trio.to_thread.run_sync(stop):
                log.warning("the plugins' asyncio loop did not end in %g s and is left behind", within_s)

    async def _run(self, plugin: Plugin, call: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(call.func if isinstance(call, functools.partial) else call):
            return await self._await(plugin, call)
        answer = await self._room(plugin).run(call)
        if inspect.isawaitable(answer):  # a plain function that hands out a coroutine
            return await self._await(plugin, lambda: answer)
        return answer

    async def _await(self, plugin: Plugin, call: Callable[[], Awaitable[Any]]) -> Any:
        if plugin.uses_asyncio:
            return await self._asyncio.run(cast("Callable[[], Coroutine[Any, Any, Any]]", call))
        return await call()

    def _room(self, plugin: Plugin) -> ThreadRoom:
        return self._rooms.setdefault(plugin.name, ThreadRoom())


def fault() -> PluginFaultError:
    """Return what a client is told; which plugin it was stands in the log alone."""
    return PluginFaultError("A plugin of this server failed on this request; the server's log names it.")
