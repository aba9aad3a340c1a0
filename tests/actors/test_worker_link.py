"""The queue that outlives its worker, against a worker that only listens."""

from typing import Any

import pytest
import trio

from memra.actors.base import ActorSystem, stop_actor
from memra.actors.trio_actor import TrioActor
from memra.actors.worker_link import WorkerLink
from memra.errors import OverloadedError
from memra.messages.work import (
    AbortRequest,
    PromptStarted,
    RequestFailed,
    StepFinished,
    SubmitPrompt,
    TokensGenerated,
    WorkEvent,
)
from memra.types import ModelName, RequestId


class Listener(TrioActor):
    def __init__(self, system: ActorSystem, heard: list[Any]) -> None:
        super().__init__(system)
        self._heard = heard

    def handle(self, message: Any) -> None:
        self._heard.append(message)


class Stage:
    """A link and its workers."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        self.system = ActorSystem(nursery, on_death=pytest.fail)
        self.delivered: list[WorkEvent] = []
        self.link = WorkerLink(lambda step: self.delivered.extend(step.events), **options)
        self.heard: list[Any] = []

    def attach(self) -> Any:
        self.heard = []
        worker = Listener.start(self.system, self.heard)
        self.link.attach(worker)
        return worker

    async def hears(self) -> list[str]:
        await trio.testing.wait_all_tasks_blocked()
        return [message.request_id for message in self.heard if isinstance(message, SubmitPrompt)]

    def lose(self, *names: str) -> None:
        self.deliver(*(RequestFailed(RequestId(name), "lost", overloaded=True, is_worker_lost=True) for name in names))

    def deliver(self, *events: WorkEvent) -> None:
        self.link.deliver(StepFinished(events, 0.0))

    @property
    def failed(self) -> list[str]:
        return [event.request_id for event in self.delivered if isinstance(event, RequestFailed)]


def prompt(name: str) -> SubmitPrompt:
    return SubmitPrompt(RequestId(name), ModelName("fake"), (1, 2), 3)


def token(name: str) -> TokensGenerated:
    return TokensGenerated(RequestId(name), (7,), 1)


async def test_prompts_wait_for_the_first_worker_and_reach_it_in_order(nursery: trio.Nursery):
    stage = Stage(nursery)
    for name in "abc":
        stage.link.submit(prompt(name))
    stage.link.abort(RequestId("b"))
    worker = stage.attach()
    assert stage.link.num_waiting == 2
    stage.link.open()
    assert stage.link.num_waiting == 0
    stage.link.submit(prompt("d"))
    assert await stage.hears() == ["a", "c", "d"]
    assert await stop_actor(worker, within_s=5)


async def test_what_has_no_token_yet_goes_to_the_next_worker(nursery: trio.Nursery):
    stage = Stage(nursery)
    first = stage.attach()
    stage.link.open()
    for name in ("running", "started", "queued", "done", "left"):
        stage.link.submit(prompt(name))
    stage.deliver(PromptStarted(RequestId("running"), 0), PromptStarted(RequestId("started"), 0), token("running"))
    stage.deliver(RequestFailed(RequestId("done"), "its own fault"))
    await stop_actor(first, within_s=5)
    stage.lose("running", "started", "queued", "left")
    stage.link.close()
    assert stage.failed == ["done", "running"]
    stage.link.abort(RequestId("left"))
    stage.link.submit(prompt("new"))
    second = stage.attach()
    stage.link.open()
    assert await stage.hears() == ["started", "queued", "new"]
    stage.deliver(token("started"))
    assert stage.delivered[-1] == token("started")
    assert await stop_actor(second, within_s=5)


async def test_the_order_in_which_a_death_is_heard_of_does_not_matter(nursery: trio.Nursery):
    stage = Stage(nursery)
    await stop_actor(stage.attach(), within_s=5)
    stage.link.open()
    stage.link.submit(prompt("before anybody knows"))  # the worker is dead already
    stage.link.close()
    stage.deliver(token("late"))
    stage.lose("before anybody knows")
    assert stage.failed == []
    second = stage.attach()
    stage.link.open()
    assert await stage.hears() == ["before anybody knows"]
    assert await stop_actor(second, within_s=5)


async def test_a_prompt_that_two_workers_died_of_is_not_tried_on_a_third(nursery: trio.Nursery):
    stage = Stage(nursery)
    workers = []
    stage.link.submit(prompt("a"))
    for _ in range(2):
        workers.append(stage.attach())
        stage.link.open()
        assert await stage.hears() == ["a"]
        assert stage.failed == []
        stage.lose("a")
        stage.link.close()
    assert stage.failed == ["a"]
    assert stage.link.num_waiting == 0
    for worker in workers:
        assert await stop_actor(worker, within_s=5)


def test_only_so_many_wait_and_the_rest_is_refused():
    delivered: list[StepFinished] = []
    link = WorkerLink(delivered.append, max_waiting=2)
    link.submit(prompt("a"))
    link.submit(prompt("b"))
    with pytest.raises(OverloadedError, match="restarting"):
        link.submit(prompt("c"))
    link.abort(RequestId("a"))
    link.submit(prompt("c"))
    assert link.num_waiting == 2


async def test_without_a_worker_nothing_is_active_and_what_waits_is_queued(kit: Any):
    async with (
        kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running,
        running.house.open_reply(kit.request("r1")),
    ):
        await kit.eventually(running.engine.entered_step.is_set)
        running.worker.close()
        running.worker.submit(prompt("r2"))
        metrics = await running.house.report_metrics()
        assert (metrics["active_sessions"], metrics["queued_requests"]) == (0, 2)
        running.worker.abort(RequestId("r2"))
        running.engine.release()


def test_what_waits_is_failed_when_no_worker_will_come():
    delivered: list[StepFinished] = []
    link = WorkerLink(delivered.append)
    link.submit(prompt("a"))
    link.give_up("the file is gone")
    link.give_up("again")
    assert delivered == [StepFinished((RequestFailed(RequestId("a"), "the file is gone", overloaded=True),), 0.0)]
    with pytest.raises(OverloadedError):
        link.submit(prompt("b"))


async def test_an_abort_reaches_the_worker(nursery: trio.Nursery):
    stage = Stage(nursery)
    worker = stage.attach()
    stage.link.open()
    stage.link.submit(prompt("a"))
    stage.link.abort(RequestId("a"))
    await trio.testing.wait_all_tasks_blocked()
    assert stage.heard == [prompt("a"), AbortRequest(RequestId("a"))]
    assert await stop_actor(worker, within_s=5)
