"""The public handles over a house of fakes: reports, what runs, and that they end with the server."""

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trio
import trio.testing

from memra.actors.key_desk import KeyDesk
from memra.actors.runtime_handles import ServerHandles
from memra.engine.device_memory import MemoryOffered
from memra.errors import ConfigurationError, ForbiddenError, RequestCancelledError, UnknownModelError
from memra.gate.key_entry import make_key
from memra.gate.keyring_file import add_entry
from memra.gate.keyring_source import KeyringSource
from memra.gate.keys import KeyLaw
from memra.messages.identity import Identity, KeyClass
from memra.messages.models import ModelTerms
from memra.messages.prefixes import PrefixesTrimmed, TenantPurged
from memra.plugins.handles import HandlesClosedError, RunningRequest
from memra.types import Lane

OFFERED = MemoryOffered("cpu", 1 << 30)
LAZY = {"fake": ModelTerms(), "other": ModelTerms(is_lazy=True)}


@dataclass
class Handled:
    running: Any
    handles: ServerHandles


@asynccontextmanager
async def handled(kit: Any, *, keys: KeyDesk | None = None, **options: Any) -> AsyncIterator[Handled]:
    async with kit.open_house(**options) as running:
        handles = ServerHandles(
            running.house, running.state, look_at_memory=lambda: OFFERED, keys=keys or KeyDesk(None)
        )
        try:
            yield Handled(running, handles)
        finally:
            handles.close()


def administered(kit: Any) -> Any:
    """Make a fake engine that remembers prefixes."""

    class Administered(kit.Engine):
        def trim(self) -> PrefixesTrimmed:
            return PrefixesTrimmed(3, 300, len(self.rows), pool_reserved_bytes=1000, pool_cached_bytes=700)

        def purge_tenant(self, tenant: str) -> TenantPurged:
            return TenantPurged(tenant, 1, 4, 400, 2, len(self.rows))

    return Administered()


async def test_reports_have_the_keys_of_the_contract(kit: Any):
    async with handled(kit, make_engine=lambda: administered(kit)) as house:
        assert await house.handles.trim() == {
            "reuse_entries": 0,
            "spec_reuse_entries": 0,
            "dspark_reuse_entries": 0,
            "prefix_entries": 3,
            "devices": [
                {
                    "device": "cpu",
                    "reclaimed_bytes": 300,
                    "still_owned_bytes": 0,
                    "pool_reserved_bytes": 1000,
                    "pool_cached_bytes": 700,
                    "driver_free_bytes": 1 << 30,
                    "synchronization_errors": [],
                }
            ],
        }
        assert await house.handles.purge_tenant("acme") == {
            "tenant": "acme",
            "host_namespaces": 1,
            "host_entries": 4,
            "host_bytes": 400,
            "device_entries": 2,
            "device_pinned_left": 0,
        }
        assert "prefix_cache_entries" in await house.handles.metrics()


async def test_a_running_request_is_listed_without_its_prompt_and_can_be_ended(kit: Any):
    async with handled(kit, make_engine=lambda: kit.Engine(prefill_steps=2, is_manual=True)) as house:
        identity = Identity("acme", "mk-acme-1", is_named=True)
        wanted = kit.request("r7", max_new_tokens=400, identity=identity, lane=Lane.JUDGE)

        async def line() -> RunningRequest:
            [only] = await house.handles.list_requests()
            return only

        async def comes_to(phase: str) -> None:
            house.running.engine.allow()
            with trio.fail_after(5):
                while (await line()).phase != phase:
                    await trio.lowlevel.checkpoint()

        async with house.running.house.open_reply(wanted) as reply:
            await kit.eventually(lambda: house.running.engine.submitted)
            first = await line()
            assert (first.request_id, first.tenant, first.principal) == ("r7", "acme", "mk-acme-1")
            assert (first.lane, first.model, first.phase, first.completion_tokens) == (Lane.JUDGE, "fake", "queued", 0)
            assert first.prompt_tokens == len(house.running.engine.submitted[0].prompt_ids)
            assert "what?" not in repr(first)
            await comes_to("prefill")
            await comes_to("decode")
            assert (await line()).completion_tokens == 1
            assert await house.handles.cancel_request("r7")
            with pytest.raises(RequestCancelledError):
                async for _ in reply:
                    pass
        house.running.engine.release()
        await house.running.is_empty()
        assert await house.handles.list_requests() == ()
        assert not await house.handles.cancel_request("r7")


async def test_a_request_whose_prompt_is_being_rendered_is_admitted(kit: Any, nursery: trio.Nursery):
    async with handled(kit) as house:
        gate = house.running.renderer.gate = Event()
        nursery.start_soon(kit.read, house.running.house, kit.request("r1"))
        await kit.eventually(lambda: house.running.num_slots_held)
        [line] = await house.handles.list_requests()
        assert (line.phase, line.prompt_tokens) == ("admitted", None)
        gate.set()
        await house.running.is_empty()


async def test_several_answers_to_one_request_are_one_line(kit: Any):
    several = kit.request("r1", num_choices=3, max_new_tokens=400)
    async with handled(kit) as house, house.running.house.open_reply(several) as reply:
        await anext(aiter(reply))
        assert [line.request_id for line in await house.handles.list_requests()] == ["r1"]


async def test_models_are_loaded_pinned_and_let_go(kit: Any):
    async with handled(kit, models=LAZY) as house:
        assert [(model["name"], model["state"]) for model in await house.handles.list_models()] == [
            ("fake", "loaded"),
            ("other", "unloaded"),
        ]
        loaded = await house.handles.load_model("other")
        assert (loaded["state"], loaded["in_use"]) == ("loaded", 0)
        await house.handles.pin_model("other")
        assert [model["pinned"] for model in await house.handles.list_models()] == [False, True]
        assert await house.handles.unload_model("other")
        assert not await house.handles.unload_model("other")
        with pytest.raises(UnknownModelError):
            await house.handles.unload_model("nobody")


async def test_a_load_that_is_left_before_it_begins_is_never_begun(kit: Any, nursery: trio.Nursery):
    async with handled(kit, models=LAZY) as house:
        opener = house.running.opener
        gate = opener.gates["fake"] = Event()
        nursery.start_soon(house.handles.load_model, "fake", "elsewhere")
        await kit.eventually(lambda: opener.built.count("fake") == 2)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_soon, scope)
            await house.handles.load_model("other")
        gate.set()
        await house.handles.load_model("fake")
        assert "other" not in opener.opened


async def test_a_load_that_is_left_while_it_runs_is_undone(kit: Any, nursery: trio.Nursery):
    async with handled(kit, models=LAZY) as house:
        opener = house.running.opener
        gate = opener.gates["other"] = Event()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when, scope, lambda: kit.eventually(lambda: "other" in opener.built))
            await house.handles.load_model("other")
        gate.set()
        await kit.eventually(lambda: "other:configured" in opener.closed)
        assert [model["state"] for model in await house.handles.list_models()] == ["loaded", "unloaded"]
        del opener.gates["other"]
        assert (await house.handles.load_model("other"))["state"] == "loaded"


async def cancel_soon(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked(0.01)
    scope.cancel()


async def cancel_when(scope: trio.CancelScope, wait: Any) -> None:
    await wait()
    scope.cancel()


async def test_shut_down_drains_and_whoever_waits_for_it_is_told(kit: Any, nursery: trio.Nursery):
    async with handled(kit) as house:
        told = trio.Event()

        async def wait() -> None:
            await house.handles.wait_shutdown()
            told.set()

        nursery.start_soon(wait)
        assert not house.handles.is_shutting_down
        house.handles.shut_down()
        with trio.fail_after(5):
            await told.wait()
            assert await house.running.state.wait_until_stopped() == 0
        assert house.handles.is_shutting_down


async def test_closed_handles_refuse_everything_and_end_what_waits(kit: Any, nursery: trio.Nursery):
    async with handled(kit, models=LAZY) as house:
        gate = house.running.opener.gates["other"] = Event()
        ended: list[BaseException] = []

        async def load() -> None:
            try:
                await house.handles.load_model("other")
            except HandlesClosedError as error:
                ended.append(error)

        nursery.start_soon(load)
        await kit.eventually(lambda: "other" in house.running.opener.built)
        house.handles.close()
        await kit.eventually(lambda: ended)
        gate.set()
        for call in (house.handles.trim, house.handles.list_models, house.handles.list_requests):
            with pytest.raises(HandlesClosedError):
                await call()
        with pytest.raises(HandlesClosedError):
            house.handles.shut_down()


async def test_closed_handles_keep_nothing_of_the_server(kit: Any):
    async with handled(kit) as house:
        kept, server = house.handles, weakref.ref(house.running.house)
        kept.close()
        house.running.house = None
        del house
        gc.collect()
        assert server() is None


async def test_a_server_without_metadata_says_so(kit: Any):
    async with handled(kit) as house:
        with pytest.raises(ConfigurationError, match="MEMRA_MODEL_METADATA"):
            await house.handles.reload_metadata()


async def test_keys_open_and_close_the_server_at_once(kit: Any, tmp_path: Path):
    path = tmp_path / "keys.toml"
    add_entry(path, make_key("first").entry)
    source, law = KeyringSource.of_file(path), KeyLaw(None)
    async with handled(kit, keys=KeyDesk(source)) as house:
        made = await house.handles.create_key("acme", key_class=KeyClass.BATCH, rate_limit=3)
        assert made.key not in repr(made)
        found = law.identify(made.key, source.keyring)
        assert (found.tenant, found.key_class, found.max_inflight) == ("acme", KeyClass.BATCH, 3)
        assert await house.handles.revoke_key(made.prefix) == 1
        with pytest.raises(ForbiddenError):
            law.identify(made.key, source.keyring)
        assert await house.handles.revoke_key(made.prefix) == 1, "once more changes nothing"
        assert await house.handles.revoke_key("mk-nobody-000000000000") == 0


async def test_without_a_keyring_file_there_are_no_keys_to_make(kit: Any):
    async with handled(kit) as house:
        with pytest.raises(ConfigurationError, match="MEMRA_API_KEYS"):
            await house.handles.create_key("acme", key_class=KeyClass.INTERACTIVE)
