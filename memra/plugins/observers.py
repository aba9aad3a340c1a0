"""Those who watch requests: one bounded queue and one task a plugin, so that nobody waits for a watcher.

Trade: delivers records in order, one after the other for each plugin. A plugin that falls behind loses the newest
records, which is counted and logged once in a while. Refuses to know what a record is. Lives in the trio thread.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from memra.errors import PluginFaultError
from memra.plugins.calling import PluginCalls
from memra.plugins.plugin import Implementation

CAPACITY = 1024
_COMPLAIN_EVERY_S = 10.0
"""A plugin that is behind loses thousands of records a minute; one line in ten seconds tells it."""

log = logging.getLogger(__name__)

_Record = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class _Watcher:
    """One plugin: its functions by hook, its queue, and what it lost."""

    name: str
    send: trio.MemorySendChannel[_Record]
    receive: trio.MemoryReceiveChannel[_Record]
    functions: dict[str, Implementation] = field(default_factory=dict)
    num_lost: int = 0
    complained_at: float = float("-inf")


class Observers:
    """The watchers of one server."""

    def __init__(self, calls: PluginCalls, implementations: Iterable[Implementation]) -> None:
        """Take the implementations of all hooks that watch."""
        self._calls = calls
        self._watchers: dict[str, _Watcher] = {}
        self._scope = trio.CancelScope(shield=True)
        self._ended = trio.Event()
        for each in implementations:
            name = each.plugin.name
            if name not in self._watchers:
                self._watchers[name] = _Watcher(name, *trio.open_memory_channel[_Record](CAPACITY))
            self._watchers[name].functions[each.hook] = each

    @property
    def num_lost(self) -> Mapping[str, int]:
        """Records that were not delivered, by plugin."""
        return {name: watcher.num_lost for name, watcher in self._watchers.items()}

    def notify(self, hook: str, **arguments: Any) -> None:
        """Queue a record for every plugin that watches for it; never waits. Once `close` is called it is lost."""
        for watcher in self._watchers.values():
            if hook in watcher.functions:
                try:
                    watcher.send.send_nowait((hook, arguments))
                except (trio.WouldBlock, trio.ClosedResourceError):
                    _note_loss(watcher)

    async def run(self) -> None:
        """Deliver until `close` is called and the queues are empty; nothing but `close` ends it."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for watcher in self._watchers.values():
                    nursery.start_soon(self._deliver, watcher)
        self._ended.set()

    async def close(self, *, within_s: float) -> None:
        """Take no more records, and wait until those that are queued are delivered, or the time is over."""
        for watcher in self._watchers.values():
            watcher.send.close()
        with trio.move_on_after(within_s):
            await self._ended.wait()
        self._scope.cancel()
        for watcher in self._watchers.values():
            num_left = watcher.receive.statistics().current_buffer_used
            if num_left:
                log.error("plugin %s: %d records were not delivered before the end", watcher.name, num_left)

    async def _deliver(self, watcher: _Watcher) -> None:
        async for hook, arguments in watcher.receive:
            try:
                await self._calls.ask_hook(watcher.functions[hook], arguments, check=_ignore)
            except PluginFaultError:
                continue  # it is in the log; nobody waits for the answer


def _ignore(_: object) -> None:
    """An observer's answer says nothing."""


def _note_loss(watcher: _Watcher) -> None:
    watcher.num_lost += 1
    now = trio.current_time()
    if now - watcher.complained_at >= _COMPLAIN_EVERY_S:
        watcher.complained_at = now
        log.error("plugin %s: too slow to watch requests, %d records lost so far", watcher.name, watcher.num_lost)
