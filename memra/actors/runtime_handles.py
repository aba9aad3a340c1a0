"""The public handles over the running house: what a plugin may do to the server, and for how long.

Trade: translates between the house's own reports and the plain values that plugins get, and ends with the server: once
closed, every call raises `HandlesClosedError`, those under way included, and the house is let go of, so that a plugin
which keeps its handles keeps neither memory nor the process. Refuses to know who calls, and how work is done. The
handles work on while the server drains. Trio thread only, but for `shut_down`. Made and closed by the composition root.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar

import trio
from pykka import ActorDeadError

from memra.actors.bridge import ActorHouse
from memra.actors.key_desk import KeyDesk
from memra.actors.run_state import RunState
from memra.engine.device_memory import MemoryOffered
from memra.errors import ConfigurationError
from memra.messages.identity import KeyClass
from memra.messages.models import ModelReported
from memra.messages.prefixes import PrefixesTrimmed
from memra.plugins.handles import HandlesClosedError, NewKey, Report, RunningRequest
from memra.types import ModelName, RequestId

Result = TypeVar("Result")


class ServerHandles:
    """Implements `memra.plugins.handles.RuntimeHandles`; one object for all plugins of a server."""

    def __init__(
        self,
        house: ActorHouse,
        state: RunState,
        *,
        look_at_memory: Callable[[], MemoryOffered],
        keys: KeyDesk,
        reload_metadata: Callable[[], Awaitable[Report]] | None = None,
    ) -> None:
        """Take what is handled.

        Args:
            house: let go of when the handles are closed.
            state: says when the way down begins.
            look_at_memory: asks the device what is free; called in a thread.
            keys: makes and disables keys.
            reload_metadata: reads the file of model metadata again; None on a server without one.
        """
        self._house: ActorHouse | None = house
        self._state = state
        self._look_at_memory = look_at_memory
        self._keys = keys
        self._reload_metadata = reload_metadata
        self._calls: set[trio.CancelScope] = set()

    def close(self) -> None:
        """End every call under way, and refuse all that come."""
        self._house = self._reload_metadata = None
        for scope in self._calls:
            scope.cancel()

    @property
    def is_shutting_down(self) -> bool:
        """Whether the server drains, or has ended."""
        return self._state.is_draining

    async def wait_shutdown(self) -> None:
        """Wait until the server begins to drain; returns at once where it has ended."""
        await self._state.wait_until_draining()

    async def trim(self) -> Report:
        """Forget every remembered prefix that no running request uses; see the contract for the report.

        Pools of a kind that this engine does not have are 0.
        """
        trimmed = await self._call(lambda house: house.trim_prefixes())
        offered = await self._call(lambda _: trio.to_thread.run_sync(self._look_at_memory, abandon_on_cancel=True))
        return _trim_report(trimmed, offered)

    async def purge_tenant(self, tenant: str) -> Report:
        """Forget what is remembered of a tenant; what running requests use is left and counted."""
        purged = await self._call(lambda house: house.purge_tenant(tenant))
        return {
            "tenant": purged.tenant,
            "host_namespaces": purged.namespaces,
            "host_entries": purged.host_entries,
            "host_bytes": purged.host_bytes,
            "device_entries": purged.device_entries,
            "device_pinned_left": purged.device_pinned_left,
        }

    async def export_prefixes(self, *, force: bool = False) -> Report:
        """Write what is remembered to the hand-off file.

        Raises:
            HandoffError: requests are worked on and it is not forced, no file is named, or it cannot be written.
        """
        return asdict(await self._call(lambda house: house.export_prefixes(force=force)))

    async def import_prefixes(self) -> Report:
        """Begin to read the hand-off file.

        Raises:
            HandoffError: there is none, or it is refused.
        """
        report = asdict(await self._call(lambda house: house.import_prefixes()))
        return {**report, "refused_models": list(report["refused_models"])}

    async def list_models(self) -> Sequence[Report]:
        """Return what lies in memory of every model, in configured order."""
        return [_model_report(model) for model in await self._call(lambda house: house.report_models())]

    async def load_model(self, name: str, source: str | None = None) -> Report:
        """Load a model, or put another in its place, and wait until it serves; leaving early takes the load back.

        Raises:
            UnknownModelError: no source was ever given for the name.
            ModelLoadError: it cannot be loaded; everything is as it was.
            OverloadedError: there is no room for it at the moment.
        """
        loaded = await self._call(lambda house: house.load_model(ModelName(name), source))
        models = await self._call(lambda house: house.report_models())
        return next(
            (_model_report(model) for model in models if model.name == loaded.name),
            {"name": loaded.name, "instance": loaded.instance},  # it was unloaded again in this moment
        )

    async def unload_model(self, name: str) -> bool:
        """Let a model go once its last request has ended; false when it was not loaded.

        Raises:
            UnknownModelError: the name is not served.
        """
        return await self._call(lambda house: house.unload_model(ModelName(name)))

    async def pin_model(self, name: str, *, is_pinned: bool = True) -> None:
        """Keep a model in memory, or stop keeping it.

        Raises:
            UnknownModelError: the name is not served.
        """
        await self._call(lambda house: house.pin_model(ModelName(name), is_pinned=is_pinned))

    async def list_requests(self) -> Sequence[RunningRequest]:
        """Return what runs and waits now, in the order in which it came."""
        return await self._call(lambda house: house.list_requests())

    async def cancel_request(self, request_id: str) -> bool:
        """End a request of whatever tenant; false when none of that id is in the house."""
        return await self._call(lambda house: house.cancel_any(RequestId(request_id)))

    async def reload_metadata(self) -> Report:
        """Read the file of model metadata again.

        Raises:
            ConfigurationError: there is none, or it is broken; nothing has changed.
        """
        return await self._call(lambda _: self._read_metadata_again())

    async def create_key(self, tenant: str, *, key_class: KeyClass, rate_limit: int | None = None) -> NewKey:
        """Make a key of a tenant's; it opens the server at once.

        Raises:
            ConfigurationError: there is no keyring in a file, it cannot be written, or the values cannot be used.
        """
        create = partial(self._keys.create, tenant, key_class=key_class, rate_limit=rate_limit)
        return await self._call(lambda _: trio.to_thread.run_sync(create))

    async def revoke_key(self, prefix: str) -> int:
        """Disable the one key of a public beginning at once, and say how many have it.

        Raises:
            ConfigurationError: there is no keyring in a file, or it cannot be written.
        """
        return await self._call(lambda _: trio.to_thread.run_sync(self._keys.revoke, prefix))

    async def metrics(self) -> Report:
        """Return the counters under the names of `/metrics`."""
        return await self._call(lambda house: house.report_metrics())

    def shut_down(self) -> None:
        """Drain and end, as SIGTERM does; callable from any thread."""
        self._open_house().begin_drain("a plugin asked for it")

    async def _read_metadata_again(self) -> Report:
        if self._reload_metadata is None:
            raise ConfigurationError("this server has no file of model metadata; name one with MEMRA_MODEL_METADATA")
        return await self._reload_metadata()

    async def _call(self, work: Callable[[ActorHouse], Awaitable[Result]]) -> Result:
        house = self._open_house()
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                return await work(house)
            except ActorDeadError:
                raise _closed() from None
            finally:
                self._calls.discard(scope)
        raise _closed()

    def _open_house(self) -> ActorHouse:
        if self._house is None:
            raise _closed()
        return self._house


def _closed() -> HandlesClosedError:
    return HandlesClosedError("the server has ended")


def _trim_report(trimmed: PrefixesTrimmed, offered: MemoryOffered) -> Report:
    device = {
        "device": offered.device,
        "reclaimed_bytes": trimmed.reclaimed_bytes,
        "still_owned_bytes": trimmed.still_owned_bytes,
        "pool_reserved_bytes": trimmed.pool_reserved_bytes,
        "pool_cached_bytes": trimmed.pool_cached_bytes,
        "driver_free_bytes": offered.free_bytes,
        "synchronization_errors": list(offered.errors),
    }
    return {
        "reuse_entries": 0,
        "spec_reuse_entries": 0,
        "dspark_reuse_entries": 0,
        "prefix_entries": trimmed.prefix_entries,
        "devices": [device],
    }


def _model_report(model: ModelReported) -> Report:
    return {
        "name": model.name,
        "state": model.state.value,
        "instance": model.instance,
        "bytes": model.num_bytes,
        "in_use": model.num_leases,
        "waiting": model.num_waiting,
        "pinned": model.terms.is_pinned,
        "lazy": model.terms.is_lazy,
        "idle_ttl_s": model.terms.idle_ttl_s,
        "context_tokens": model.context_tokens,
    }
