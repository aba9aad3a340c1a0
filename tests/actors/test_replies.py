import pytest
import trio

from memra.actors.replies import ReplyStream, ReplyTable
from memra.errors import DrainingError, OverloadedError
from memra.messages.work import PromptStarted, StepFinished, TokensGenerated
from memra.types import RequestId

A, B = RequestId("a"), RequestId("b")


def tokens(request_id: RequestId, number: int) -> TokensGenerated:
    return TokensGenerated(request_id, (number,), number)


async def test_events_are_sorted_to_their_readers_in_order():
    table = ReplyTable()
    a, b = table.open(A), table.open(B)
    table.deliver(StepFinished((PromptStarted(A, 0), tokens(B, 1), tokens(A, 1)), step_s=0.5))
    table.deliver(StepFinished((tokens(A, 2), tokens(RequestId("nobody"), 9)), step_s=0.0))
    first = await a.take()
    assert [arrival.event for arrival in first] == [PromptStarted(A, 0), tokens(A, 1), tokens(A, 2)]
    assert first[1].at_ns - first[0].at_ns == 500_000_000, "a prompt starts with its step"
    assert [arrival.event for arrival in await b.take()] == [tokens(B, 1)]


async def test_a_reader_sleeps_until_its_own_events_come():
    table = ReplyTable()
    stream = table.open(A)
    table.open(B)
    taken: list[int] = []

    async def read() -> None:
        taken.append(len(await stream.take()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        table.deliver(StepFinished((tokens(B, 1),), step_s=0.0))
        await trio.testing.wait_all_tasks_blocked()
        assert taken == []
        table.deliver(StepFinished((tokens(A, 1), tokens(A, 2)), step_s=0.0))
    assert taken == [2]


async def test_a_cut_stream_gives_what_it_has_and_then_the_first_error():
    table = ReplyTable()
    stream = table.open(A)
    table.deliver(StepFinished((tokens(A, 1),), step_s=0.0))
    table.cut_all(DrainingError("first"))
    table.cut_all(DrainingError("second"))
    assert len(await stream.take()) == 1
    for _ in range(2):
        with pytest.raises(DrainingError, match="first"):
            await stream.take()


async def test_a_closed_request_is_forgotten_with_its_later_events():
    table = ReplyTable()
    table.open(A)
    with pytest.raises(ValueError, match="in use"):
        table.open(A)
    table.close(A)
    table.close(A)
    table.deliver(StepFinished((tokens(A, 1),), step_s=0.0))
    assert table.num_open == 0
    table.open(A)


async def test_waiting_for_none_ends_when_the_last_one_closes():
    table = ReplyTable()
    await table.wait_until_none()
    table.open(A)
    table.open(B)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(table.wait_until_none)
            await trio.testing.wait_all_tasks_blocked()
            table.close(A)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            table.close(B)


async def test_a_reader_without_a_row_wakes_once_for_a_nudge_and_for_the_cut():
    stream = ReplyStream()
    stream.nudge()
    await stream.wait()
    with trio.move_on_after(0) as scope:
        await stream.wait()
    assert scope.cancelled_caught
    stream.nudge()
    stream.cut(OverloadedError("over"))
    with pytest.raises(OverloadedError):
        await stream.wait()
