"""The plugins of one server, as the rest of the house sees them: one typed method for each thing that is asked.

Trade: the facade over this room. `loading` finds plugins, `calling` calls them, `observers` feeds those who watch.
Refuses to know what the answers are used for. The methods stand in the order of a server's life; coroutines and
observers belong to the run of trio that `running` was entered in.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from memra.errors import (
    AuthenticationError,
    ForbiddenError,
    MemraError,
    PluginFaultError,
    SourceError,
    StartupError,
    UsageError,
)
from memra.messages.admission import RequestEnded
from memra.messages.identity import Credentials, Identity
from memra.plugins.answers import a_list, a_mapping, a_path, a_template, a_verdict, an_identity, nothing
from memra.plugins.asyncio_handles import handles_for_asyncio
from memra.plugins.calling import FAULTS, Ask, PluginCalls
from memra.plugins.feeds import Feed, FeedUnavailableError, ModelCard
from memra.plugins.handles import RuntimeHandles
from memra.plugins.loading import Complaints, Declared, collect_declared, configure_all, import_plugins
from memra.plugins.metering_calls import MeteringCalls, a_metering
from memra.plugins.observers import Observers
from memra.plugins.plugin import Implementation
from memra.plugins.plugin_set import PluginSet
from memra.plugins.questions import AdmissionQuestion, Deny, Limit, Verdict
from memra.types import ModelName

log = logging.getLogger(__name__)

_WATCHING = ("memra_request_started", "memra_request_ended")
_FLUSH_S = 2.0
_SHUTDOWN_S = 5.0
"""For all plugins together, as `memra_shutdown` says; the watchdog gives the whole way down ten."""
_LOOP_S = 1.0
_WHOLE_RUN_S = float("inf")


class Plugins:
    """The plugins of one server; a closed set after `load`."""

    def __init__(self, *, timeout_s: float = 5.0) -> None:
        """Start with no plugin.

        Args:
            timeout_s: what a call on behalf of a request may take.
        """
        self._set = PluginSet()
        self._declared = Declared()
        self._calls = PluginCalls(timeout_s=timeout_s)
        self._observers = Observers(self._calls, ())

    # -- start

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the loaded plugins, in order."""
        return self._set.names

    def register(self, plugin: object, name: str) -> None:
        """Add one plugin object.

        Raises:
            UsageError: a hook is misspelt, takes an unknown argument, or needs a later memra.
        """
        self._set.add(plugin, name)

    def load(
        self,
        *,
        blocked: Iterable[str],
        tables: Mapping[str, Mapping[str, Any]],
        taken: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Load every installed plugin that is not blocked, configure all, and ask them what they add by name.

        Args:
            blocked: entry-point names that are left out.
            tables: `[plugins.NAME]` tables of the configuration file.
            taken: names that are memra's own, by hook: `memra_commands`, `memra_feeds`, `memra_tool_dialects`.

        Raises:
            UsageError: names everything that is wrong with the plugins, all in one message.
        """
        complaints = Complaints()
        import_plugins(self._set, blocked=frozenset(blocked), complaints=complaints)
        configure_all(self._set, tables, complaints)
        self._declared = collect_declared(self._set, complaints, taken=taken)
        complaints.raise_all()

    @property
    def feed_schemas(self) -> tuple[str, ...]:
        """What `GET /models?schema=NAME` may name beside memra's own."""
        return tuple(self._declared.feeds)

    @property
    def tool_dialects(self) -> tuple[Any, ...]:
        """Dialects that are asked before memra's own."""
        return self._declared.dialects

    @property
    def telemetry_exporters(self) -> tuple[tuple[str, Any], ...]:
        """Exporters of spans, each with the plugin that brings it, in words."""
        return self._declared.exporters

    # -- models; in the thread that opens one

    def open_source(self, source: str, cache: Path) -> Path | None:
        """Let plugins fetch a model's source; None: it is no plugin's kind.

        Raises:
            SourceError: the plugin whose kind it is could not fetch it.
        """
        try:
            path: Path | None = self._first("memra_open_source", a_path, source=source, cache=cache)
        except StartupError as error:
            raise SourceError(error.message) from error
        return path

    def chat_template(self, model: ModelName, architecture: str, template: str | None) -> str | None:
        """Let plugins put another chat template in the place of a model's own; None: its own stays.

        Raises:
            StartupError: a plugin failed.
        """
        arguments = {"model": model, "architecture": architecture, "template": template}
        other: str | None = self._first("memra_chat_template", a_template, **arguments)
        return other

    # -- metering, routes, ready; on the loop's thread, before the doors open

    def metering(self, models: Sequence[ModelName]) -> MeteringCalls | None:
        """Ask for the accounting; None where no plugin brings one.

        Raises:
            StartupError: a plugin failed.
            UsageError: two plugins bring one.
        """
        given = [
            MeteringCalls(implementation.plugin, metering, self._calls)
            for implementation in self._set.implementations("memra_metering")
            if (metering := _call_now(implementation, a_metering, models=tuple(models))) is not None
        ]
        if len(given) > 1:
            origins = " and ".join(f"plugin {calls.plugin.origin}" for calls in given)
            raise UsageError(f"memra_metering: {origins} both bring an accounting; block one")
        return given[0] if given else None

    def blueprints(self, handles: RuntimeHandles) -> tuple[tuple[str, Any], ...]:
        """Ask for public routes: blueprints, each with the plugin that brings it, in words.

        Raises:
            StartupError: a plugin failed.
        """
        return self._blueprints("memra_blueprints", handles)

    def admin_blueprints(self, handles: RuntimeHandles) -> tuple[tuple[str, Any], ...]:
        """Ask for routes of the admin listener; as `blueprints`."""
        return self._blueprints("memra_admin_blueprints", handles)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Feed those who watch requests while the context lasts; then deliver what waits, and let plugins let go.

        The way out takes at most 8 s, also when the context is cancelled.
        """
        watching = [each for hook in _WATCHING for each in self._set.implementations(hook)]
        self._observers = Observers(self._calls, watching)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._observers.run)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):
                    await self._observers.close(within_s=_FLUSH_S)
                    await self._shut_down()
                    await self._calls.close(within_s=_LOOP_S)

    async def ready(self, handles: RuntimeHandles) -> None:
        """Hand out the handles, and run what plugins do with them; to be cancelled when the server ends."""
        async with trio.open_nursery() as nursery:
            for implementation in self._set.implementations("memra_ready"):
                nursery.start_soon(self._be_ready, implementation, handles)

    # -- requests

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Ask who sends a request; the first answer counts, and None leaves it to the server's own keys.

        Raises:
            AuthenticationError: a plugin refuses the credentials: 401.
            ForbiddenError: it knows them, and refuses: 403.
            PluginFaultError: it failed.
        """
        for implementation in self._set.implementations("memra_authenticate"):
            identity = await self._calls.ask_hook(
                implementation,
                {"credentials": credentials},
                check=an_identity,
                passes=(AuthenticationError, ForbiddenError),
            )
            if identity is not None:
                return identity
        return None

    async def admit(self, question: AdmissionQuestion) -> Verdict | None:
        """Ask whether a request may come in: the first denial, else the smallest limit, else None.

        Raises:
            PluginFaultError: a plugin failed; that denies too.
        """
        limit: Limit | None = None
        for implementation in self._set.implementations("memra_admit"):
            verdict = await self._calls.ask_hook(implementation, {"question": question}, check=a_verdict)
            if isinstance(verdict, Deny):
                return verdict
            if verdict is not None and (limit is None or verdict.max_tokens < limit.max_tokens):
                limit = verdict
        return limit

    def feed(self, schema: str) -> Feed:
        """Return the feed of one of `feed_schemas`, for whoever has no server running."""
        return self._declared.feeds[schema][1]

    async def render_feed(self, schema: str, cards: Sequence[ModelCard]) -> Mapping[str, Any]:
        """Write models down for one of `feed_schemas`, as plain values.

        Raises:
            FeedUnavailableError: something that the schema demands is not declared.
            PluginFaultError: the plugin failed.
        """
        plugin, feed = self._declared.feeds[schema]
        ask = Ask(plugin, f"memra_feeds: {schema}", feed.render, check=a_mapping, passes=(FeedUnavailableError,))
        answer: Mapping[str, Any] = await self._calls.ask(ask, cards)
        return answer

    def request_started(self, question: AdmissionQuestion) -> None:
        """Tell those who watch that a request was let in; never waits."""
        self._observers.notify("memra_request_started", question=question)

    def request_ended(self, record: RequestEnded) -> None:
        """Hand the usage record of a request to those who watch; never waits."""
        self._observers.notify("memra_request_ended", record=record)

    # -- inside

    def _first(self, hook: str, check: Callable[[Any], Any], **arguments: Any) -> Any:
        for implementation in self._set.implementations(hook):
            answer = _call_now(implementation, check, **arguments)
            if answer is not None:
                return answer
        return None

    def _blueprints(self, hook: str, handles: RuntimeHandles) -> tuple[tuple[str, Any], ...]:
        return tuple(
            (implementation.plugin.origin, blueprint)
            for implementation in self._set.implementations(hook)
            for blueprint in _call_now(implementation, a_list, handles=handles)
        )

    async def _be_ready(self, implementation: Implementation, handles: RuntimeHandles) -> None:
        if implementation.plugin.uses_asyncio:
            async with handles_for_asyncio(handles) as translated:
                await self._tell_ready(implementation, translated)
        else:
            await self._tell_ready(implementation, handles)

    async def _tell_ready(self, implementation: Implementation, handles: RuntimeHandles) -> None:
        with contextlib.suppress(PluginFaultError):  # it is in the log; a nursery around this would wrap it
            await self._calls.ask_hook(implementation, {"handles": handles}, check=nothing, timeout_s=_WHOLE_RUN_S)

    async def _shut_down(self) -> None:
        """Tell all plugins at once that it is over; they have their time together."""
        async with trio.open_nursery() as nursery:
            for implementation in self._set.implementations("memra_shutdown"):
                nursery.start_soon(self._tell_end, implementation)

    async def _tell_end(self, implementation: Implementation) -> None:
        with contextlib.suppress(PluginFaultError):  # it is in the log
            await self._calls.ask_hook(implementation, {}, check=nothing, timeout_s=_SHUTDOWN_S)


def _call_now(implementation: Implementation, check: Callable[[Any], Any], **arguments: Any) -> Any:
    """Call a plain function of a plugin here and now, where the start depends on it.

    Raises:
        StartupError: it failed; says which plugin, and why.
    """
    try:
        return check(implementation.call(**arguments))
    except FAULTS as error:
        reason = error.message if isinstance(error, MemraError) else f"{type(error).__name__}: {error}"
        raise StartupError(f"plugin {implementation.plugin.origin}: {implementation.hook} failed: {reason}") from error
