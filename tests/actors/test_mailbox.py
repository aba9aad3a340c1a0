import threading
from typing import Any

import pykka
import pytest
import trio
from pykka import messages
from pykka._envelope import Envelope

from memra.actors.future import TrioFuture
from memra.actors.mailbox import ThreadMailbox, TrioMailbox


def bound() -> TrioMailbox:
    mailbox = TrioMailbox()
    mailbox.bind(trio.lowlevel.current_trio_token(), threading.get_ident())
    return mailbox


@pytest.mark.parametrize("kind", [ThreadMailbox, TrioMailbox])
def test_messages_come_out_in_the_order_in_which_they_went_in(kind: Any):
    mailbox = kind()
    for number in range(3):
        mailbox.put(Envelope(number))
    assert [mailbox.get().message for _ in range(3)] == [0, 1, 2]
    assert mailbox.empty()


@pytest.mark.parametrize("kind", [ThreadMailbox, TrioMailbox])
def test_a_closed_mailbox_answers_at_once(kind: Any):
    mailbox = kind()
    mailbox.put(Envelope("waiting"))
    assert [envelope.message for envelope in mailbox.close()] == ["waiting"]
    assert mailbox.close() == []
    with pytest.raises(pykka.ActorDeadError):
        mailbox.put(Envelope("told"))
    asked, stopped = TrioFuture(), TrioFuture()
    mailbox.put(Envelope("asked", reply_to=asked))
    mailbox.put(Envelope(messages._ActorStop(), reply_to=stopped))
    with pytest.raises(pykka.ActorDeadError):
        asked.get(timeout=0)
    assert stopped.get(timeout=0) is None
    assert mailbox.empty()


@pytest.mark.parametrize("kind", [ThreadMailbox, TrioMailbox])
def test_a_withdrawn_message_is_not_read_but_a_stop_is(kind: Any):
    mailbox = kind()
    asked, kept, stopped = TrioFuture(), TrioFuture(), TrioFuture()
    mailbox.put(Envelope("asked", reply_to=asked))
    mailbox.put(Envelope("kept", reply_to=kept))
    mailbox.put(Envelope(messages._ActorStop(), reply_to=stopped))
    for answer in (asked, asked, stopped, TrioFuture()):
        mailbox.withdraw(answer)
    left = mailbox.close()
    assert [envelope.reply_to for envelope in left] == [kept, stopped]


def test_a_thread_sleeps_on_its_mailbox_until_a_message_comes():
    mailbox, got = ThreadMailbox(), []
    reader = threading.Thread(target=lambda: got.append(mailbox.get().message))
    reader.start()
    mailbox.put(Envelope("wake"))
    reader.join(5)
    assert got == ["wake"]


async def test_a_task_is_woken_from_any_thread():
    mailbox = bound()
    received: list[Any] = []

    async def read() -> None:
        while len(received) < 200:
            received.append((await mailbox.receive()).message)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(100):
                await trio.to_thread.run_sync(mailbox.put, Envelope(number))
                mailbox.put(Envelope(-number))
    assert [number for number in received if number > 0] == list(range(1, 100))


async def test_a_cancelled_reader_loses_no_message():
    mailbox = bound()
    with trio.CancelScope() as scope:
        scope.cancel()
        mailbox.put(Envelope("kept"))
        await mailbox.receive()
    assert scope.cancelled_caught
    assert (await mailbox.receive()).message == "kept"


async def test_a_reader_that_is_never_idle_lets_others_run():
    mailbox, turns = bound(), []

    async def other() -> None:
        turns.append("other")

    for number in range(50):
        mailbox.put(Envelope(number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(50):
            await mailbox.receive()
        assert turns == ["other"]


def test_a_message_to_an_ended_loop_is_refused():
    async def make() -> TrioMailbox:
        return bound()

    mailbox = trio.run(make)
    answer = TrioFuture()
    put = threading.Thread(target=mailbox.put, args=(Envelope("late", reply_to=answer),))
    put.start()
    put.join(5)
    with pytest.raises(pykka.ActorDeadError):
        answer.get(timeout=0)


def test_messages_that_an_ended_loop_left_are_all_answered():
    """Those told among them too; only the sender that finds the end hears of its own."""

    async def make() -> tuple[TrioMailbox, list[TrioFuture]]:
        mailbox, answers = bound(), [TrioFuture(), TrioFuture()]
        for answer in answers:
            mailbox.put(Envelope("told"))
            mailbox.put(Envelope("asked", reply_to=answer))
        return mailbox, answers

    mailbox, answers = trio.run(make)
    errors: list[Exception] = []

    def put(envelope: Envelope[Any]) -> None:
        try:
            mailbox.put(envelope)
        except pykka.ActorDeadError as error:
            errors.append(error)

    late = TrioFuture()
    for envelope, num_errors in ((Envelope("late", reply_to=late), 0), (Envelope("late"), 1)):
        sender = threading.Thread(target=put, args=(envelope,))
        sender.start()
        sender.join(5)
        assert len(errors) == num_errors
    for answer in (*answers, late):
        with pytest.raises(pykka.ActorDeadError):
            answer.get(timeout=0)
