"""Trio alone and trio as a guest end in the same way."""

import asyncio
import signal
import threading
from typing import Any

import pytest
import trio

from memra.actors.host_loop import run_on
from memra.messages.lifecycle import BeginDrain

BOTH = pytest.mark.parametrize("host_loop", ["trio", "asyncio"])


@BOTH
def test_the_result_comes_back(host_loop: str):
    async def main() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    assert run_on(host_loop, main) == 7


@BOTH
def test_an_error_comes_out_as_it_is(host_loop: str):
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        run_on(host_loop, main)


@BOTH
def test_ctrl_c_stops_the_main_task(host_loop: str):
    ends: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            ends.append("not in the middle of a line")
            await trio.sleep_forever()
        finally:
            ends.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        run_on(host_loop, main)
    assert ends == ["not in the middle of a line", "cleaned up"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@BOTH
def test_ctrl_c_wakes_a_loop_that_sleeps(host_loop: str):
    async def main() -> None:
        threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run_on(host_loop, main)


@BOTH
def test_a_whole_house_serves_and_drains_at_a_signal(host_loop: str, kit: Any):
    async def main() -> int:
        async with kit.open_house(signals=(signal.SIGTERM, signal.SIGINT)) as running:
            assert (await kit.read(running.house, kit.request())).text == "abcde"
            signal.raise_signal(signal.SIGTERM)
            with trio.fail_after(5):
                return int(await running.state.wait_until_stopped())

    assert run_on(host_loop, main) == 0


@BOTH
def test_a_drain_works_without_signals(host_loop: str, kit: Any):
    async def main() -> int:
        async with kit.open_house() as running:
            running.lifecycle.tell(BeginDrain("test"))
            with trio.fail_after(5):
                return int(await running.state.wait_until_stopped())

    assert run_on(host_loop, main) == 0


def test_a_guest_shares_its_thread_with_asyncio(kit: Any):
    async def main() -> str:
        loop = asyncio.get_running_loop()
        done = trio.Event()

        async def native() -> str:
            await asyncio.sleep(0)
            return "from asyncio"

        task = loop.create_task(native())
        task.add_done_callback(lambda _task: done.set())
        await done.wait()
        return task.result()

    assert run_on("asyncio", main) == "from asyncio"


def test_what_the_guest_leaves_on_the_host_is_cancelled():
    ends: list[str] = []

    async def main() -> None:
        started = trio.Event()

        async def endless() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        tasks.append(asyncio.get_running_loop().create_task(endless()))
        await started.wait()

    tasks: list[Any] = []
    run_on("asyncio", main)
    assert ends == ["cancelled"]


def test_another_loop_is_refused():
    async def main() -> None: ...

    with pytest.raises(ValueError, match="there are trio and asyncio"):
        run_on("uvloop", main)
