import threading
from typing import Any

import pytest

from memra.actors.fault_injection import FaultPlan, InjectedFaultError
from memra.errors import OverloadedError, WorkerFaultError
from memra.messages.generation import ReplyDelta
from memra.messages.work import RequestFailed, SubmitPrompt
from memra.settings import FaultSettings, LifecycleSettings
from memra.types import ModelName, RequestId


def prompt(name: str) -> SubmitPrompt:
    return SubmitPrompt(RequestId(name), ModelName("fake"), (1, 2, 3), 100)


def test_without_a_fault_the_engine_stays_as_it_is(kit: Any):
    engine = kit.Engine()
    assert FaultPlan(FaultSettings()).wrap(engine) is engine


def test_the_worker_dies_in_the_steps_that_were_named_counted_over_engines(kit: Any):
    plan = FaultPlan(FaultSettings(panic_after=(2, 4)))
    for _ in range(2):
        engine = plan.wrap(kit.Engine())
        engine.submit(prompt("a"))
        engine.step()
        with pytest.raises(InjectedFaultError, match="MEMRA_PANIC_AFTER"):
            engine.step()
    last = plan.wrap(kit.Engine())
    last.submit(prompt("a"))
    for _ in range(10):
        last.step()
    assert last.has_work


def test_one_request_fails_and_its_neighbour_does_not(kit: Any):
    inner = kit.Engine()
    engine = FaultPlan(FaultSettings(fault_after=2)).wrap(inner)
    for name in "abc":
        engine.submit(prompt(name))
    events = [*engine.step().events, *engine.step().events]
    assert [e.request_id for e in events if isinstance(e, RequestFailed)] == ["b"]
    assert inner.aborted == ["b"]
    assert set(inner.rows) == {"a", "c"}
    engine.check_integrity()
    engine.close()
    assert inner.is_closed


def test_a_hang_begins_in_the_step_that_was_named(kit: Any):
    hangs: list[int] = []
    engine = kit.Engine()
    wrapped = FaultPlan(FaultSettings(hang_after=2), hang=lambda: hangs.append(engine.num_steps)).wrap(engine)
    wrapped.submit(prompt("a"))
    for _ in range(4):
        wrapped.step()
    assert hangs == [1]


async def test_a_fault_in_one_request_is_its_own(kit: Any):
    plan = FaultPlan(FaultSettings(fault_after=2))
    async with kit.open_house(make_engine=lambda: _threaded(plan, kit.Engine())) as running:
        assert (await kit.read(running.house, kit.request("r1"))).text == "abcde"
        with pytest.raises(WorkerFaultError):
            await kit.read(running.house, kit.request("r2"))
        assert (await kit.read(running.house, kit.request("r3"))).text == "abcde"
        health = await running.house.report_health()
        assert (health.is_ready, health.worker.generation) == (True, 0)


async def test_what_has_begun_is_lost_with_the_worker_and_what_has_not_is_answered_whole(kit: Any):
    plan = FaultPlan(FaultSettings(panic_after=(3,)))

    def make() -> Any:
        return _threaded(plan, kit.Engine(is_manual=True))

    async with kit.open_house(make_engine=make) as running:
        async with running.house.open_reply(kit.request("begun")) as begun:
            running.engine.allow(1)
            assert isinstance([await begun.__anext__(), await begun.__anext__()][-1], ReplyDelta)
            await kit.eventually(lambda: running.engine.num_entered == 2)
            async with running.house.open_reply(kit.request("waiting")) as waiting:
                running.engine.allow(1)
                with pytest.raises(OverloadedError):
                    [part async for part in begun]
                await running.serves(1)
                running.engine.release()
                parts = [part async for part in waiting]
        assert "".join(part.text for part in parts if isinstance(part, ReplyDelta)) == "abcde"
        assert [prompt.request_id for prompt in running.engine.submitted] == ["waiting"]
        await running.is_empty()


async def test_a_hung_worker_is_red_within_the_threshold(kit: Any):
    gate = threading.Event()

    def hang() -> None:
        kit.ring()
        gate.wait()

    plan = FaultPlan(FaultSettings(hang_after=2), hang=hang)
    settings = LifecycleSettings(stall_s=1)
    async with kit.open_house(make_engine=lambda: _threaded(plan, kit.Engine()), settings=settings) as running:
        async with running.house.open_reply(kit.request()) as reply:
            await reply.__anext__()
            await kit.eventually(lambda: running.engine.num_steps == 1)
            running.pulse.beat_at -= 1.5
            health = await running.house.report_health()
            assert (health.is_live, health.is_ready) == (False, False)
            gate.set()
            [part async for part in reply]
        assert (await running.house.report_health()).is_live


def _threaded(plan: FaultPlan, engine: Any) -> Any:
    """Name the inner engine's thread: the house does so for the outer one only."""
    engine.thread = threading.get_ident()
    return plan.wrap(engine)
