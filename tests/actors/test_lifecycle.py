import os
import signal
import threading
import time
from typing import Any

import pytest
import trio

from memra.actors.base import ActorSystem, Ref, ask
from memra.actors.lifecycle import Lifecycle, LifecycleParts
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.run_state import RunState
from memra.actors.trio_actor import TrioActor
from memra.actors.watchdog import Watchdog
from memra.actors.worker_link import WorkerLink
from memra.errors import DrainingError, IntegrityError, OverloadedError, StartupError
from memra.messages.generation import ReplyDelta
from memra.messages.lifecycle import BeginDrain, EndDrain, RestartWorker, WorkerDied, WorkerReady
from memra.settings import LifecycleSettings
from memra.types import StopCause, WorkerPhase


async def test_a_worker_that_dies_is_replaced_once_and_the_server_goes_on(kit: Any, caplog: pytest.LogCaptureFixture):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.engine.allow(1)
            parts = [await reply.__anext__(), await reply.__anext__()]
            assert isinstance(parts[-1], ReplyDelta)
            running.engine.step_error = RuntimeError("device lost")
            running.engine.release()
            with pytest.raises(OverloadedError) as failed:
                [part async for part in reply]
            assert failed.value.retry_after_s == 5.0
        await running.serves(1)
        running.engine.release()
        assert (await kit.read(running.house, kit.request("r2"))).text == "abcde"
        health = await running.house.report_health()
        assert health.is_live
        assert health.worker.generation == 1
        assert (await running.house.report_metrics())["worker_respawns_total"] == 1
        assert not running.state.is_stopped
        await running.is_empty()
        assert [record.failed for record in running.ended] == [True, False]
    assert "device lost" in caplog.text


async def test_a_worker_that_dies_beyond_its_restarts_ends_the_run_with_70(kit: Any):
    def make() -> Any:
        engine = kit.Engine()
        engine.step_error = RuntimeError("device lost")
        return engine

    async with kit.open_house(make_engine=make, settings=LifecycleSettings(worker_respawns=1)) as running:
        with trio.fail_after(5), pytest.raises(OverloadedError, match="out of memory or was restarted"):
            await kit.read(running.house, kit.request())
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 70
        assert running.pulse.generation == 1
        with pytest.raises(OverloadedError, match="restarting"):
            await kit.read(running.house, kit.request("late"))
        health = await running.house.report_health()
        assert not health.is_live
        assert health.worker.phase is WorkerPhase.DEAD


async def test_a_worker_whose_books_are_wrong_is_replaced(kit: Any, caplog: pytest.LogCaptureFixture):
    async with kit.open_house() as running:
        running.engine.integrity_error = IntegrityError("page 7 is lost")
        assert (await kit.read(running.house, kit.request())).text == "abcde"
        await running.serves(1)
        assert (await kit.read(running.house, kit.request("r2"))).text == "abcde"
        assert len(running.engines) == 2
    assert "page 7 is lost" in caplog.text


async def test_the_pause_before_a_restart_grows_with_each_try(autojump_clock: trio.testing.MockClock, kit: Any):
    starts: list[float] = []

    class Silent(TrioActor):
        def handle(self, _message: Any) -> None: ...

    async with trio.open_nursery() as nursery:
        system = ActorSystem(nursery, on_death=pytest.fail)
        silent = Silent.start(system)

        def start_worker(_supervisor: Ref) -> Ref:
            starts.append(trio.current_time())
            return silent

        begun = trio.current_time()
        state, pulse = RunState(), WorkerPulse()
        parts = LifecycleParts(
            state=state,
            replies=ReplyTable(),
            ingress=silent,
            admission=silent,
            worker=WorkerLink(pytest.fail),
            pulse=pulse,
            start_worker=start_worker,
            models=(),
        )
        lifecycle = Lifecycle.start(system, parts, settings=LifecycleSettings(worker_respawns=2), signals=())
        for generation in range(3):
            lifecycle.tell(WorkerReady(generation))
            lifecycle.tell(WorkerDied("device lost", generation=generation))
            await trio.sleep(60)
        assert [start - begun for start in starts] == [0, 2, 64]
        assert await state.wait_until_stopped() == 70
        nursery.cancel_scope.cancel()


async def test_no_restart_is_allowed_when_the_setting_says_none(kit: Any):
    async with kit.open_house(settings=LifecycleSettings(worker_respawns=0)) as running:
        running.engine.step_error = RuntimeError("device lost")
        with pytest.raises(OverloadedError):
            await kit.read(running.house, kit.request())
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 70
        assert len(running.engines) == 1


async def test_a_request_while_the_worker_restarts_waits_for_the_next_one(kit: Any):
    gate = threading.Event()
    gate.set()

    def make() -> Any:
        gate.wait()
        return kit.Engine()

    async with kit.open_house(make_engine=make) as running:
        gate.clear()
        running.engine.step_error = RuntimeError("device lost")
        async with running.house.open_reply(kit.request("r1")) as first:
            await kit.eventually(lambda: running.pulse.generation == 1)
            async with running.house.open_reply(kit.request("left")):
                assert running.worker.num_waiting == 2
            async with running.house.open_reply(kit.request("r2")) as second:
                health = await running.house.report_health()
                assert (health.is_live, health.worker.phase) == (False, WorkerPhase.LOADING)
                assert running.worker.num_waiting == 2
                gate.set()
                texts = [
                    "".join(p.text for p in [q async for q in r] if isinstance(p, ReplyDelta)) for r in (first, second)
                ]
        assert texts == ["abcde", "abcde"]
        assert [prompt.request_id for prompt in running.engine.submitted] == ["r1", "r2"]
        await running.is_empty()
        assert [record.failed for record in running.ended] == [False, False, False]


async def test_a_first_load_that_fails_is_a_startup_error(kit: Any):
    def make() -> Any:
        raise StartupError("no such file: model.gguf")

    async with kit.open_house(make_engine=make, wait=False) as running:
        with trio.fail_after(5), pytest.raises(StartupError, match=r"no such file: model\.gguf"):
            await running.state.wait_until_ready()
        assert await running.state.wait_until_stopped() == 1


async def test_a_reload_that_fails_ends_the_run_with_70(kit: Any):
    loads = []

    def make() -> Any:
        loads.append(1)
        if len(loads) > 1:
            raise StartupError("the file is gone")
        return kit.Engine()

    async with kit.open_house(make_engine=make, settings=LifecycleSettings(worker_respawns=5)) as running:
        running.engine.step_error = RuntimeError("device lost")
        with pytest.raises(OverloadedError):
            await kit.read(running.house, kit.request())
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 70


async def test_a_hung_worker_is_seen_while_health_and_metrics_still_answer(kit: Any):
    settings = LifecycleSettings(stall_s=1)
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running:
        assert (await running.house.report_health()).is_ready
        await running.house.report_metrics()
        async with running.house.open_reply(kit.request()):
            await kit.eventually(running.engine.entered_step.is_set)
            assert (await running.house.report_health()).is_ready
            running.pulse.beat_at -= 2  # as if the step had lasted two seconds
            started = time.monotonic()
            health = await running.house.report_health()
            assert not health.is_live
            assert not health.is_ready
            assert health.beat_age_ms > 2000
            assert "no sign of life" in (health.detail or "")
            reports = running.engine.num_reports
            for _ in range(2):
                metrics = await running.house.report_metrics()
                assert metrics["admitted"] == 0  # the last known ones
            assert time.monotonic() - started < 4
            running.engine.release()
            await kit.eventually(lambda: running.engine.num_reports == reports + 1)
            assert (await running.house.report_metrics())["admitted"] == 1


async def test_a_drain_lets_running_requests_finish_and_refuses_new_ones(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.lifecycle.tell(BeginDrain("test"))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(DrainingError) as refused:
                await kit.read(running.house, kit.request("late"))
            assert 29 < refused.value.retry_after_s <= 30
            health = await running.house.report_health()
            assert (health.is_live, health.is_ready, health.is_draining) == (True, False, True)
            assert not running.state.is_stopped
            running.engine.release()
            parts = [part async for part in reply]
            assert parts[-1].stop is StopCause.MAX_TOKENS
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        assert [record.request_id for record in running.ended] == ["r1"]


async def test_a_drain_that_runs_out_of_time_cuts_the_rest_with_an_error(kit: Any):
    settings = LifecycleSettings(drain_s=0.05)
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running:
        async with running.house.open_reply(kit.request(max_new_tokens=400)) as reply:
            running.engine.allow(1)
            await reply.__anext__()
            assert isinstance(await reply.__anext__(), ReplyDelta)
            running.lifecycle.tell(BeginDrain("test"))
            with trio.fail_after(5), pytest.raises(DrainingError, match="before the answer was complete"):
                await reply.__anext__()
        running.engine.allow(2)
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        await running.is_empty()
        assert running.ended[0].failed


async def test_a_request_that_ignores_the_cut_does_not_hold_the_drain(kit: Any):
    settings = LifecycleSettings(drain_s=0)
    async with (
        kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running,
        running.house.open_reply(kit.request()),
    ):
        running.lifecycle.tell(BeginDrain("test"))
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        running.engine.release()


async def test_a_drain_can_be_cut_short(kit: Any):
    settings = LifecycleSettings(drain_s=1000)
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.lifecycle.tell(BeginDrain("test"))
            running.lifecycle.tell(BeginDrain("asked again, which changes nothing"))
            running.lifecycle.tell(EndDrain())
            with trio.fail_after(5), pytest.raises(DrainingError):
                await reply.__anext__()
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        running.engine.release()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_a_second_one_cuts_it_short(kit: Any, number: signal.Signals):
    settings = LifecycleSettings(drain_s=1000)
    signals = (signal.SIGTERM, signal.SIGINT)
    house = kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings, signals=signals)
    async with house as running:
        async with running.house.open_reply(kit.request()) as reply:
            os.kill(os.getpid(), number)
            await kit.eventually(lambda: running.replies.num_open == 1 and running.state)
            with trio.fail_after(5):
                while not (await running.house.report_health()).is_draining:
                    await trio.lowlevel.checkpoint()
            assert not running.state.is_stopped
            os.kill(os.getpid(), number)
            with trio.fail_after(5), pytest.raises(DrainingError):
                await reply.__anext__()
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        running.engine.release()


async def test_a_stop_while_the_weights_load_does_not_wait_for_them(kit: Any):
    gate = threading.Event()

    def make() -> Any:
        gate.wait()
        return kit.Engine()

    try:
        async with kit.open_house(make_engine=make, wait=False) as running:
            running.lifecycle.tell(BeginDrain("test"))
            with trio.fail_after(5):
                assert not await running.state.wait_until_ready()
                assert await running.state.wait_until_stopped() == 0
            gate.set()
    finally:
        gate.set()


async def test_a_worker_that_dies_during_the_drain_is_not_replaced(kit: Any):
    settings = LifecycleSettings(worker_respawns=0)
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.lifecycle.tell(BeginDrain("test"))
            running.engine.step_error = RuntimeError("device lost")
            running.engine.release()
            with pytest.raises(OverloadedError):
                [part async for part in reply]
            await kit.eventually(lambda: not running.worker.is_open)  # lifecycle has heard of it
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        assert len(running.engines) == 1


async def test_what_waits_for_a_worker_is_failed_when_the_drain_comes_before_the_restart(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.worker.close()  # as lifecycle does when the worker dies
            running.lifecycle.tell(BeginDrain("test"))
            running.lifecycle.tell(RestartWorker(1))
            with trio.fail_after(5), pytest.raises(OverloadedError):
                [part async for part in reply]
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 0
        assert len(running.engines) == 1
        running.engine.release()


async def test_the_death_of_another_actor_ends_the_run(kit: Any, caplog: pytest.LogCaptureFixture):
    async with kit.open_house() as running:
        running.ingress.tell("no message")
        with trio.fail_after(5):
            assert await running.state.wait_until_stopped() == 70
        with pytest.raises(DrainingError):
            await kit.read(running.house, kit.request())
    assert "Ingress accepts no str" in caplog.text


async def test_lifecycle_is_loud_about_a_stranger_that_asks(kit: Any):
    async with kit.open_house() as running:
        with pytest.raises(TypeError, match="Lifecycle accepts no float"):
            await ask(running.lifecycle, 1.5)
        running.lifecycle.tell(WorkerReady(0))
        assert (await running.house.report_health()).is_live


def test_a_watchdog_bites_when_nobody_calls_it_back():
    bitten = threading.Event()
    codes = []

    def end(code: int) -> None:
        codes.append(code)
        bitten.set()

    Watchdog(end_process=end).arm(after_s=0.001, exit_code=7)
    assert bitten.wait(5)
    assert codes == [7]


def test_a_watchdog_that_is_called_back_does_not_bite():
    watchdog = Watchdog(end_process=lambda _code: pytest.fail("it bit"))
    watchdog.cancel()
    watchdog.arm(after_s=1000, exit_code=1)
    watchdog.arm(after_s=2000, exit_code=0)
    watchdog.cancel()
    assert watchdog._timer is None


async def test_a_way_down_that_hangs_is_ended_and_one_that_does_not_is_left_alone(
    kit: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("memra.actors.lifecycle._TEARDOWN_S", 0.0)
    monkeypatch.setattr("memra.actors.lifecycle.CUT_GRACE_S", 0.01)
    codes: list[int] = []

    def end_process(code: int) -> None:
        codes.append(code)
        kit.ring()

    async with kit.open_house(settings=LifecycleSettings(drain_s=0.01), end_process=end_process) as running:
        running.lifecycle.tell(BeginDrain("test"))
        await running.state.wait_until_stopped()
        await kit.eventually(lambda: codes == [0])  # nobody takes the house down
