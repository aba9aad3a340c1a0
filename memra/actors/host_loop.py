"""Which event loop drives the house: trio alone, or trio as a guest on asyncio.

The same main function runs on both and ends the same way: its result is returned, its exception raised, Ctrl-C arrives
as `KeyboardInterrupt` at a checkpoint. The guest costs more per wake-up; it is there for plugins that must share an
asyncio loop. Called by the composition root alone, in the main thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import outcome
import trio

T = TypeVar("T")


def run_on(host_loop: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function to its end.

    Args:
        host_loop: `trio` or `asyncio`.
        main: takes nothing; runs as trio's main task.

    Raises:
        ValueError: no such loop.
    """
    if host_loop == "trio":
        return trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)
    if host_loop == "asyncio":
        # Not Runner.run(): it would take Ctrl-C for itself and leave the guest hanging.
        with asyncio.Runner() as runner:
            return runner.get_loop().run_until_complete(_run_as_guest(main))
    raise ValueError(f"no event loop {host_loop!r}; there are trio and asyncio")


async def _run_as_guest(main: Callable[[], Awaitable[T]]) -> T:
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[outcome.Outcome[Any]] = loop.create_future()
    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=finished.set_result,
        restrict_keyboard_interrupt_to_checkpoints=True,
    )
    result: T = (await finished).unwrap()
    return result
