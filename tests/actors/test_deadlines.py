"""What a deadline ends, wherever the request is, and that the row is given up with it. Time moves by jumps alone."""

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from memra.errors import DeadlineExceededError
from memra.messages.generation import ReplyDelta, ReplyStarted
from memra.types import StopCause


def manual(kit: Any, **options: Any) -> Any:
    return lambda: kit.Engine(is_manual=True, **options)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_deadline_without_a_token_is_an_error_and_frees_the_row(
    kit: Any, mock_clock: MockClock, *, is_stream: bool
):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with running.house.open_reply(kit.request(is_stream=is_stream, timeout_ms=1500)) as reply:
            await kit.eventually(running.engine.entered_step.is_set)
            mock_clock.jump(1.6)
            for _ in range(2):
                with pytest.raises(DeadlineExceededError):
                    await anext(aiter(reply))
            running.engine.allow(1)
            await kit.eventually(lambda: running.engine.aborted == ["r1"])
        await running.is_empty()
        (record,) = running.ended
        assert (record.stop, record.failed) == (None, False)


async def test_a_whole_answer_keeps_what_was_there_when_its_deadline_passed(kit: Any, mock_clock: MockClock):
    async with kit.open_house(make_engine=manual(kit)) as running:
        wanted = kit.request(timeout_ms=1500, max_new_tokens=80, stop_strings=("bX",))
        async with running.house.open_reply(wanted) as reply:
            running.engine.allow(1)
            assert isinstance(await anext(reply), ReplyStarted)
            assert await anext(reply) == ReplyDelta("", (ord("a"),))
            running.engine.allow(1)
            assert await anext(reply) == ReplyDelta("a", (ord("b"),))
            mock_clock.jump(1.6)
            held_back, finished = [part async for part in reply]
            assert held_back == ReplyDelta("b", ())
            assert (finished.stop, finished.usage.completion_tokens) == (StopCause.DEADLINE, 2)
            running.engine.allow(1)
            await kit.eventually(lambda: running.engine.aborted == ["r1"])
        await running.is_empty()
        (record,) = running.ended
        assert (record.stop, record.failed, record.usage.completion_tokens) == (StopCause.DEADLINE, False, 2)


async def test_tokens_that_arrived_before_the_deadline_count_although_nobody_had_read_them(
    kit: Any, mock_clock: MockClock
):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with running.house.open_reply(kit.request(timeout_ms=1500)) as reply:
            running.engine.allow(2)
            await kit.eventually(lambda: running.engine.num_entered == 3)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(1.6)
            parts = [part async for part in reply]
            assert parts[1] == ReplyDelta("ab", (ord("a"), ord("b")))
            assert parts[-1].stop is StopCause.DEADLINE
            running.engine.release()
        await running.is_empty()


async def test_an_answer_that_ended_in_time_is_whole_although_it_was_read_late(kit: Any, mock_clock: MockClock):
    async with kit.open_house() as running:
        async with running.house.open_reply(kit.request(timeout_ms=1500)) as reply:
            await kit.eventually(lambda: running.engine.num_completed == 1)
            await running.house.report_metrics()
            mock_clock.jump(1.6)
            assert [part async for part in reply][-1].stop is StopCause.MAX_TOKENS
        await running.is_empty()
        assert running.engine.aborted == []


async def test_a_stream_that_has_begun_has_no_deadline(kit: Any, mock_clock: MockClock):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with running.house.open_reply(kit.request(is_stream=True, timeout_ms=1500)) as reply:
            running.engine.allow(1)
            assert isinstance(await anext(reply), ReplyStarted)
            assert isinstance(await anext(reply), ReplyDelta)
            mock_clock.jump(1000)
            running.engine.release()
            assert [part async for part in reply][-1].stop is StopCause.MAX_TOKENS
        await running.is_empty()


async def test_a_deadline_that_passes_before_the_worker_is_reached_is_a_refusal(kit: Any, mock_clock: MockClock):
    async with kit.open_house() as running:
        running.renderer.gate = threading.Event()
        caught: list[DeadlineExceededError] = []

        async def client() -> None:
            try:
                await kit.read(running.house, kit.request(is_stream=True, timeout_ms=1500))
            except DeadlineExceededError as error:
                caught.append(error)

        async with trio.open_nursery() as clients:
            clients.start_soon(client)
            await kit.eventually(running.renderer.entered.is_set)
            mock_clock.jump(1.6)
            await kit.eventually(lambda: caught)
        running.renderer.gate.set()
        await running.is_empty()
        assert running.engine.submitted == []
        assert [(record.stop, record.failed) for record in running.ended] == [(None, False)]


async def test_a_client_that_leaves_is_not_told_of_a_deadline(kit: Any, mock_clock: MockClock):
    async with kit.open_house(make_engine=manual(kit)) as running:
        with trio.CancelScope() as scope:
            async with running.house.open_reply(kit.request(timeout_ms=1500)) as reply:
                await kit.eventually(running.engine.entered_step.is_set)
                mock_clock.jump(1.6)
                scope.cancel()
                await anext(aiter(reply))
        assert scope.cancelled_caught
        running.engine.release()
        await running.is_empty()
