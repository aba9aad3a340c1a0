import asyncio
import threading

import pytest
import trio

from memra.actors.future import TrioFuture


async def test_trio_awaits_an_answer_from_another_thread():
    future = TrioFuture()
    setter = threading.Thread(target=future.set, args=(7,))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, setter.start)
        with trio.fail_after(5):
            assert await future == 7
    setter.join(5)
    assert await future == 7


async def test_trio_awaits_an_answer_from_its_own_thread():
    future = TrioFuture()
    async with trio.open_nursery() as nursery:

        async def give() -> None:
            future.set("x")

        nursery.start_soon(give)
        with trio.fail_after(5):
            assert await future == "x"


async def test_an_error_is_raised_where_it_is_awaited():
    future = TrioFuture()
    error = KeyError("lost")
    future.set_exception((KeyError, error, None))
    with pytest.raises(KeyError, match="lost"):
        await future


async def test_giving_up_the_wait_leaves_the_future_usable():
    future = TrioFuture()
    with trio.move_on_after(0) as scope:
        await future
    assert scope.cancelled_caught
    future.set(1)
    assert await future == 1


async def test_a_blocking_get_in_the_loops_thread_is_refused():
    future = TrioFuture()
    with pytest.raises(RuntimeError, match="await the future"):
        future.get(timeout=1)
    future.set(2)
    assert future.get() == 2


async def test_a_future_that_can_only_block_says_so():
    with pytest.raises(TypeError, match="can only block"):
        await TrioFuture().map(str)


async def test_awaiting_an_answer_that_is_there_is_still_a_checkpoint():
    future = TrioFuture()
    future.set(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await future
    assert scope.cancelled_caught


def test_asyncio_awaits_it_without_blocking_its_loop():
    async def main() -> tuple[int, int]:
        future, ticks, release = TrioFuture(), 0, threading.Event()

        def give() -> None:
            release.wait(5)
            future.set(7)

        setter = threading.Thread(target=give)
        setter.start()
        waiting = asyncio.ensure_future(answer(future))
        while ticks < 10:
            ticks += 1
            await asyncio.sleep(0)
        release.set()
        result = await asyncio.wait_for(waiting, 5)
        setter.join(5)
        return result, ticks

    async def answer(future: TrioFuture) -> int:
        return await future

    assert asyncio.run(main()) == (7, 10)


def test_an_answer_after_the_loops_end_hurts_nobody():
    future = TrioFuture()

    async def give_up() -> None:
        with trio.move_on_after(0):
            await future

    trio.run(give_up)

    async def give_up_in_asyncio() -> None:
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()

    async def wait() -> None:
        await future

    asyncio.run(give_up_in_asyncio())
    future.set(1)
    assert future.get() == 1


def test_a_callback_runs_once_whenever_it_is_added():
    future, calls = TrioFuture(), []
    future.add_done_callback(lambda: calls.append("before"))
    future.set(1)
    future.add_done_callback(lambda: calls.append("after"))
    assert calls == ["before", "after"]
