import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest
import trio

from memra.actors.base import ActorSystem, Ref, ask, stop_actor
from memra.actors.gpu_worker import GpuWorker
from memra.actors.pulse import WorkerPulse
from memra.actors.trio_actor import TrioActor
from memra.errors import IntegrityError, OverloadedError, UnsupportedModelError
from memra.messages.lifecycle import WorkerDied, WorkerReady
from memra.messages.work import (
    AbortRequest,
    ReportWork,
    RequestFailed,
    StepFinished,
    SubmitPrompt,
    TokensGenerated,
)
from memra.types import ModelName, RequestId, StopCause, WorkerPhase


class Supervisor(TrioActor):
    def __init__(self, system: ActorSystem, heard: list[Any]) -> None:
        super().__init__(system)
        self._heard = heard

    def handle(self, message: Any) -> None:
        self._heard.append(message)


class Stage:
    """A worker alone, with everything that it says."""

    def __init__(self, nursery: trio.Nursery, make_engine: Callable[[], Any]) -> None:
        self.deaths: list[str] = []
        self.heard: list[Any] = []
        self.steps: list[StepFinished] = []
        self.threads: set[int] = set()
        self.engines: list[Any] = []
        self.pulse = WorkerPulse()
        self.system = ActorSystem(nursery, on_death=lambda name, _error: self.deaths.append(name))
        self.supervisor = Supervisor.start(self.system, self.heard)
        self._make_engine = make_engine
        self.worker: Ref = GpuWorker.start(
            self.system, make_engine=self.make, deliver=self.deliver, supervisor=self.supervisor, pulse=self.pulse
        )

    def make(self) -> Any:
        engine = self._make_engine()
        engine.thread = threading.get_ident()
        self.engines.append(engine)
        return engine

    def deliver(self, step: StepFinished) -> None:
        self.threads.add(threading.get_ident())
        self.steps.append(step)

    @property
    def events(self) -> list[Any]:
        return [event for step in self.steps for event in step.events]

    async def leave(self) -> None:
        for engine in self.engines:
            engine.release()
        assert await stop_actor(self.worker, within_s=5)
        assert await stop_actor(self.supervisor, within_s=5)


def prompt(name: str, max_new_tokens: int = 3) -> SubmitPrompt:
    return SubmitPrompt(RequestId(name), ModelName("fake"), (1, 2), max_new_tokens)


async def test_it_loads_and_works_in_its_own_thread_and_delivers_in_the_loops(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, kit.Engine)
    await kit.eventually(lambda: stage.heard)
    assert stage.heard == [WorkerReady(0)]
    assert stage.engines[0].thread != threading.get_ident()
    stage.worker.tell(prompt("a"))
    stage.worker.tell(prompt("b"))
    await kit.eventually(lambda: len([e for e in stage.events if getattr(e, "stop", None)]) == 2)
    assert stage.threads == {threading.get_ident()}
    await stage.leave()
    assert stage.engines[0].is_closed


async def test_all_events_of_a_step_come_in_one_hop(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, lambda: kit.Engine(is_manual=True))
    for name in "abcdefgh":
        stage.worker.tell(prompt(name))
    await kit.eventually(lambda: stage.engines and stage.engines[0].entered_step.is_set())
    stage.engines[0].release()
    await kit.eventually(lambda: len([e for e in stage.events if getattr(e, "stop", None)]) == 8)
    assert len(stage.steps) == stage.engines[0].num_steps <= 4
    await stage.leave()


async def test_messages_that_arrive_during_a_step_are_handled_before_the_next(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, lambda: kit.Engine(is_manual=True))
    stage.worker.tell(prompt("a", 100))
    await kit.eventually(lambda: stage.engines and stage.engines[0].entered_step.is_set())
    engine = stage.engines[0]
    stage.worker.tell(AbortRequest(RequestId("a")))
    engine.allow(1)
    await kit.eventually(lambda: engine.aborted)
    await ask(stage.worker, ReportWork())
    assert engine.num_steps == 1
    assert not engine.rows
    await stage.leave()


async def test_many_prompts_do_not_make_a_message_wait_for_more_than_one_step(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, lambda: kit.Engine(is_manual=True))
    for name in "abcd":
        stage.worker.tell(prompt(name, 100))
    await kit.eventually(lambda: stage.engines and stage.engines[0].num_entered == 1)
    stage.engines[0].allow(1)
    await kit.eventually(lambda: stage.engines[0].num_entered == 2)
    assert len(stage.engines[0].submitted) == 4
    report = stage.worker.ask(ReportWork(), block=False)
    stage.engines[0].allow(1)
    with trio.fail_after(5):
        await report
    await stage.leave()


async def test_when_idle_it_checks_the_books_and_sleeps(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, kit.Engine)
    stage.worker.tell(prompt("a"))
    await kit.eventually(lambda: stage.engines and stage.engines[0].num_checks == 1)
    engine = stage.engines[0]
    assert stage.pulse.phase is WorkerPhase.IDLE
    steps = engine.num_steps
    await ask(stage.worker, ReportWork())
    assert engine.num_steps == steps
    assert stage.worker.is_alive()
    await stage.leave()


async def test_books_that_are_found_wrong_end_the_worker(
    kit: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
):
    stage = Stage(nursery, kit.Engine)
    await kit.eventually(lambda: stage.heard)
    engine = stage.engines[0]
    engine.integrity_error = IntegrityError("page 7 is lost")
    stage.worker.tell(prompt("a"))
    await kit.eventually(lambda: len(stage.heard) == 2)
    assert stage.heard[1] == WorkerDied("page 7 is lost")
    assert not stage.worker.is_alive()
    assert "page 7 is lost" in caplog.text
    await kit.eventually(lambda: engine.is_closed)
    await stage.leave()


async def test_a_driver_that_hangs_after_a_failure_keeps_nobody_waiting(
    kit: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
):
    stage = Stage(nursery, kit.Engine)
    await kit.eventually(lambda: stage.heard)
    engine = stage.engines[0]
    engine.close_gate = threading.Event()
    engine.step_error = ValueError("device lost")
    stage.worker.tell(prompt("a"))
    try:
        await kit.eventually(lambda: WorkerDied("ValueError: device lost") in stage.heard)
        assert [event.request_id for event in stage.events if isinstance(event, RequestFailed)] == ["a"]
        assert not engine.is_closed
    finally:
        engine.close_gate.set()
    await kit.eventually(lambda: engine.is_closed)
    assert "device lost" in caplog.text
    await stage.leave()


async def test_a_failed_step_fails_every_request_and_ends_the_worker(
    kit: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
):
    stage = Stage(nursery, lambda: kit.Engine(is_manual=True))
    stage.worker.tell(prompt("done", 1))
    await kit.eventually(lambda: stage.engines)
    engine = stage.engines[0]
    engine.allow(1)
    await kit.eventually(lambda: stage.events)
    stage.worker.tell(prompt("running"))
    stage.worker.tell(prompt("gone before"))
    await kit.eventually(lambda: engine.num_entered == 2)
    stage.worker.tell(AbortRequest(RequestId("gone before")))
    engine.allow(1)
    await kit.eventually(lambda: engine.num_entered == 3)
    stage.worker.tell(prompt("waiting in the mailbox"))
    stage.worker.tell(prompt("left"))
    stage.worker.tell(AbortRequest(RequestId("left")))
    question = stage.worker.ask(ReportWork(), block=False)
    engine.step_error = ValueError("device lost")
    engine.release()
    await kit.eventually(lambda: WorkerDied("ValueError: device lost") in stage.heard)
    failed = {event.request_id: event for event in stage.events if isinstance(event, RequestFailed)}
    assert set(failed) == {"running", "waiting in the mailbox"}
    assert all(event.overloaded for event in failed.values())
    with pytest.raises(pykka.ActorDeadError):
        await question
    with pytest.raises(pykka.ActorDeadError):
        stage.worker.tell(prompt("late"))
    assert stage.pulse.phase is WorkerPhase.DEAD
    await kit.eventually(lambda: engine.is_closed)
    assert stage.deaths == []
    assert "device lost" in caplog.text
    await stage.leave()


async def test_an_exit_inside_the_engine_ends_the_worker_and_nobody_else(
    kit: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
):
    stage = Stage(nursery, kit.Engine)
    await kit.eventually(lambda: stage.heard)
    stage.engines[0].step_error = SystemExit(3)
    stage.worker.tell(prompt("a"))
    await kit.eventually(lambda: len(stage.heard) == 2)
    assert "SystemExit" in stage.heard[1].detail
    assert stage.supervisor.is_alive()
    await stage.leave()
    assert "SystemExit" in caplog.text


async def test_an_error_out_of_submit_fails_that_request_alone(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, kit.Engine)
    await kit.eventually(lambda: stage.heard)
    stage.engines[0].submit_error = OverloadedError("no memory")
    stage.worker.tell(prompt("a"))
    await kit.eventually(lambda: stage.events)
    assert stage.events == [RequestFailed(RequestId("a"), "OverloadedError: no memory", overloaded=True)]
    stage.engines[0].submit_error = None
    stage.worker.tell(prompt("b", 1))
    await kit.eventually(lambda: len(stage.events) == 3)
    assert stage.events[2] == TokensGenerated(RequestId("b"), (ord("a"),), 1, StopCause.MAX_TOKENS)
    await stage.leave()


async def test_a_load_that_fails_is_reported_in_the_words_of_the_error(
    nursery: trio.Nursery, kit: Any, caplog: pytest.LogCaptureFixture
):
    def refuse() -> Any:
        raise UnsupportedModelError("the file holds mamba layers, which memra does not run")

    stage = Stage(nursery, refuse)
    await kit.eventually(lambda: stage.heard)
    assert stage.heard == [WorkerDied("the file holds mamba layers, which memra does not run", was_loaded=False)]
    assert not stage.worker.is_alive()
    await stage.leave()
    assert "Traceback" not in caplog.text


async def test_a_stop_fails_what_is_open_and_frees_the_engine(kit: Any, nursery: trio.Nursery):
    stage = Stage(nursery, lambda: kit.Engine(is_manual=True))
    stage.worker.tell(prompt("a", 100))
    await kit.eventually(lambda: stage.engines and stage.engines[0].entered_step.is_set())
    stage.worker.tell(prompt("b", 100))
    await stage.leave()
    await kit.eventually(lambda: {e.request_id for e in stage.events if isinstance(e, RequestFailed)} == {"a", "b"})
    assert stage.engines[0].is_closed
    assert not stage.engines[0].is_manual


async def test_a_stop_while_loading_closes_the_engine_that_came_of_it(kit: Any, nursery: trio.Nursery):
    gate = threading.Event()

    def slow() -> Any:
        gate.wait()
        return kit.Engine()

    stage = Stage(nursery, slow)
    assert not await stop_actor(stage.worker, within_s=0.01)
    gate.set()
    await kit.eventually(lambda: stage.engines and stage.engines[0].is_closed)
    await stage.leave()


def test_a_loop_that_has_ended_does_not_hurt_the_worker(kit: Any):
    """The worker outlives the loop by a step; its delivery goes nowhere."""
    engine = kit.Engine(is_manual=True)

    async def main() -> Stage:
        async with trio.open_nursery() as nursery:
            stage = Stage(nursery, lambda: engine)
            stage.worker.tell(prompt("a", 1))
            await kit.eventually(engine.entered_step.is_set)
            nursery.cancel_scope.cancel()
        return stage

    stage = trio.run(main)
    engine.release()
    assert stage.worker.stop(timeout=5)
    assert engine.num_steps == 1
    assert engine.is_closed


def test_the_pulse_keeps_the_longest_step():
    pulse = WorkerPulse()
    pulse.begin(2)
    assert (pulse.read().phase, pulse.read().generation) == (WorkerPhase.LOADING, 2)
    pulse.note_tick(0.25)
    pulse.note_tick(0.125)
    pulse.note_progress(12.5, 0)
    assert pulse.read().tick_max_ms == 250
    assert pulse.read().progress_at == 12.5
    assert pulse.read().prefill is None
    pulse.beat(WorkerPhase.BUSY)
    assert pulse.read().beat_at > 12.5
    assert pulse.read().phase is WorkerPhase.BUSY
