"""Both kinds of actors keep the same promises."""

import threading
from typing import Any

import pykka
import pytest
import trio
from pykka._envelope import Envelope

from memra.actors.base import ActorSystem, Ref, UnknownMessageError, ask, stop_actor, tell_if_alive
from memra.actors.thread_actor import ThreadActor
from memra.actors.trio_actor import TrioActor


class Behaviour:
    """Does what it is told, and remembers."""

    calls: list[Any]

    def on_start(self) -> None:
        self.calls.append("start")

    def on_stop(self) -> None:
        self.calls.append("stop")

    def handle(self, message: Any) -> Any:
        self.calls.append(message)
        match message:
            case "thread":
                return threading.get_ident()
            case "raise":
                raise ValueError("as told")
            case "exit":
                raise SystemExit(1)
            case str():
                return message.upper()
            case _:
                raise UnknownMessageError(self, message)


class InTrio(Behaviour, TrioActor):
    def __init__(self, system: ActorSystem, calls: list[Any]) -> None:
        super().__init__(system)
        self.calls = calls

    def on_failure(self, *_error: Any) -> None:
        self.calls.append("failure")

    def on_exit(self) -> None:
        self.calls.append("exit")


class InThread(Behaviour, ThreadActor):
    def __init__(self, system: ActorSystem, calls: list[Any]) -> None:
        super().__init__(system)
        self.calls = calls


@pytest.fixture
def deaths() -> list[str]:
    return []


@pytest.fixture
def system(nursery: trio.Nursery, deaths: list[str]) -> ActorSystem:
    return ActorSystem(nursery, on_death=lambda name, error: deaths.append(f"{name}: {error}"))


BOTH = pytest.mark.parametrize("kind", [InTrio, InThread])


@BOTH
async def test_it_starts_answers_in_order_and_stops(system: ActorSystem, kind: Any):
    calls: list[Any] = []
    ref: Ref = kind.start(system, calls)
    ref.tell("one")
    assert await ask(ref, "two") == "TWO"
    assert await stop_actor(ref, within_s=5)
    assert calls[:4] == ["start", "one", "two", "stop"]
    assert not ref.is_alive()
    assert not tell_if_alive(ref, "late")
    with pytest.raises(pykka.ActorDeadError):
        await ask(ref, "late")
    # A sender that looked a moment too early finds the mailbox closed.
    for thread in threading.enumerate():
        if thread.name == kind.__name__:
            await trio.to_thread.run_sync(thread.join, 5)
    with pytest.raises(pykka.ActorDeadError):
        ref.actor_inbox.put(Envelope("told"))
    assert await stop_actor(ref, within_s=5), "a stopped actor counts as stopped"


async def test_a_trio_actor_lives_in_the_loops_thread_and_a_thread_actor_does_not(system: ActorSystem):
    in_trio, in_thread = InTrio.start(system, []), InThread.start(system, [])
    assert await ask(in_trio, "thread") == threading.get_ident()
    assert await ask(in_thread, "thread") != threading.get_ident()
    for ref in (in_trio, in_thread):
        assert await stop_actor(ref, within_s=5)


@BOTH
async def test_an_error_of_an_ask_goes_to_the_asker_and_the_actor_lives(
    system: ActorSystem, kind: Any, deaths: list[str]
):
    ref: Ref = kind.start(system, [])
    with pytest.raises(ValueError, match="as told"):
        await ask(ref, "raise")
    with pytest.raises(UnknownMessageError, match=f"{kind.__name__} accepts no int"):
        await ask(ref, 5)
    assert await ask(ref, "still") == "STILL"
    assert await stop_actor(ref, within_s=5)
    assert deaths == []


@BOTH
async def test_an_error_of_a_tell_ends_the_actor_and_the_system_hears_of_it(
    system: ActorSystem, kind: Any, deaths: list[str], kit: Any
):
    ref: Ref = kind.start(system, [])
    ref.tell("raise")
    waiting = ref.ask("never", block=False)
    with trio.fail_after(5), pytest.raises(pykka.ActorDeadError):
        await waiting
    await kit.eventually(lambda: deaths)
    assert deaths == [f"{kind.__name__}: as told"]
    assert not ref.is_alive()
    assert not tell_if_alive(ref, "late")


async def test_a_trio_actor_ends_with_on_failure_and_on_exit(system: ActorSystem, kit: Any):
    calls: list[Any] = []
    ref = InTrio.start(system, calls)
    ref.tell("raise")
    await kit.eventually(lambda: "exit" in calls)
    assert calls == ["start", "raise", "failure", "exit"]
    assert not ref.is_alive()


async def test_a_system_exit_in_a_thread_ends_that_actor_alone(system: ActorSystem, deaths: list[str], kit: Any):
    victim, witness = InThread.start(system, []), InThread.start(system, [])
    victim.tell("exit")
    await kit.eventually(lambda: deaths)
    assert deaths == ["InThread: InThread was ended by SystemExit"]
    assert await ask(witness, "here") == "HERE"
    assert await stop_actor(witness, within_s=5)


async def test_trio_actors_end_with_their_nursery_and_answer_whoever_waits():
    calls: list[Any] = []
    async with trio.open_nursery() as nursery:
        ref = InTrio.start(ActorSystem(nursery, on_death=lambda *_: None), calls)
        assert await ask(ref, "a") == "A"
        nursery.cancel_scope.cancel()
        waiting = ref.ask("b", block=False)
    with pytest.raises(pykka.ActorDeadError):
        await waiting
    assert calls == ["start", "a", "exit"]


async def test_a_handler_may_not_wait(system: ActorSystem):
    class Waiting(TrioActor):
        async def handle(self, _message: Any) -> None:  # type: ignore[override]
            await trio.sleep(1)

    ref = Waiting.start(system)
    with pytest.raises(TypeError, match="handler of Waiting is a coroutine"):
        await ask(ref, 1)
    assert await stop_actor(ref, within_s=5)


async def test_a_stop_that_does_not_come_is_not_waited_for(system: ActorSystem):
    gate = threading.Event()

    class Busy(ThreadActor):
        def handle(self, _message: Any) -> None:
            gate.wait()

    ref = Busy.start(system)
    ref.tell(1)
    assert not await stop_actor(ref, within_s=0.01)
    gate.set()
    assert await stop_actor(ref, within_s=5)


async def test_an_ask_that_is_given_up_makes_no_work(system: ActorSystem):
    gate, handled = threading.Event(), []

    class Busy(ThreadActor):
        def handle(self, message: str) -> None:
            gate.wait()
            handled.append(message)

    ref = Busy.start(system)
    ref.tell("first")
    with trio.move_on_after(0):
        await ask(ref, "given up")
    ref.tell("last")
    assert not await stop_actor(ref, within_s=0), "nobody waits for it, but it is still to stop"
    gate.set()
    assert await stop_actor(ref, within_s=5)
    assert handled == ["first", "last"]


async def test_nobody_blocks_the_loop_by_mistake(system: ActorSystem):
    ref = InThread.start(system, [])
    with pytest.raises(RuntimeError, match="await the future"):
        ref.ask("x")
    with pytest.raises(RuntimeError, match="await the future"):
        ref.stop()
    assert await stop_actor(ref, within_s=5)


async def test_actors_that_tell_each_other_never_wait_for_each_other(system: ActorSystem, kit: Any):
    """A ring of tells, and asks from tasks, all at once: with handlers that cannot wait there is no deadlock."""

    class Ring(TrioActor):
        def __init__(self, system: ActorSystem, members: list[Ref]) -> None:
            super().__init__(system)
            self._members = members

        def handle(self, message: tuple[int, int]) -> int:
            place, hops = message
            if hops:
                self._members[place].tell(((place + 1) % 3, hops - 1))
            else:
                done.set()
            return hops

    members: list[Ref] = []
    done = trio.Event()
    members += [Ring.start(system, members) for _ in range(3)]
    with trio.fail_after(10):
        async with trio.open_nursery() as askers:
            for place in range(3):
                askers.start_soon(ask, members[place], (place, 100))
        await done.wait()
    for ref in members:
        assert await stop_actor(ref, within_s=5)
