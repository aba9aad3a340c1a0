"""How many bodies are read at once, and what the next one is told."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from memra.errors import BodyBusyError
from memra.http.body_admission import (
    LARGE_BODY_BYTES,
    MAX_LARGE_BODIES,
    MAX_SMALL_BODIES,
    SMALL_PATIENCE_S,
    BodyAdmission,
)

Start = Callable[..., Awaitable[Any]]
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SIZES = {
    "large": (b"Content-Length: %d\r\n\r\n{" % (LARGE_BODY_BYTES + 1), MAX_LARGE_BODIES),
    "undeclared": (b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", MAX_LARGE_BODIES),
    "small": (b"Content-Length: %d\r\n\r\n{" % LARGE_BODY_BYTES, MAX_SMALL_BODIES),
}


@asynccontextmanager
async def arriving(server: Any, head: bytes, count: int) -> AsyncIterator[list[trio.SocketStream]]:
    """Requests whose bodies have begun to arrive and do not end."""
    async with AsyncExitStack() as open_streams:
        streams = [await open_streams.enter_async_context(await server.connect()) for _ in range(count)]
        for stream in streams:
            await stream.send_all(HEAD + head)
        await trio.testing.wait_all_tasks_blocked(0.05)
        yield streams


@pytest.mark.parametrize(("head", "limit"), SIZES.values(), ids=SIZES)
async def test_one_body_too_many_is_told_to_come_back(start: Start, wire: Any, head: bytes, limit: int):
    server = await start()
    async with arriving(server, head, limit), await server.connect() as stream:
        await stream.send_all(HEAD + head)
        with trio.fail_after(3):
            answer = await wire.read_until(stream, b"}}")
    assert answer.startswith(b"HTTP/1.1 429")
    assert b'"code":"body_admission_busy"' in answer
    assert b"retry-after: 1\r\n" in answer.lower()
    assert b"x-should-retry" not in answer.lower()


@pytest.mark.parametrize(("head", "limit"), SIZES.values(), ids=SIZES)
async def test_as_many_bodies_as_there_are_permits_are_waited_for(start: Start, wire: Any, head: bytes, limit: int):
    server = await start()
    async with arriving(server, head, limit - 1), await server.connect() as last:
        await last.send_all(HEAD + head)
        with trio.move_on_after(0.8) as answered:
            await last.receive_some()
        assert answered.cancelled_caught


async def test_large_bodies_do_not_keep_small_ones_out(start: Start):
    server = await start()
    async with arriving(server, *SIZES["large"]):
        assert (await server.chat()).status_code == 200


async def test_small_bodies_do_not_keep_large_ones_out(start: Start):
    server = await start()
    async with arriving(server, *SIZES["small"]):
        text = "x" * LARGE_BODY_BYTES
        assert (await server.chat(messages=[{"role": "user", "content": text}])).status_code == 200


async def test_senders_that_leave_or_are_too_slow_give_their_permits_back(start: Start):
    server = await start(body_timeout_s=0.2)
    for _ in range(2):
        async with arriving(server, *SIZES["small"]) as streams:
            for stream in streams[::2]:
                await stream.aclose()
            for stream in streams[1::2]:
                with trio.fail_after(3):
                    assert (await stream.receive_some()).startswith(b"HTTP/1.1 408")
        assert (await server.chat()).status_code == 200


async def test_clients_that_start_together_are_all_let_in(start: Start, wire: Any):
    server = await start()
    head, _, body = wire.post(wire.chat()).partition(b"\r\n\r\n")
    async with AsyncExitStack() as open_streams:
        streams = [await open_streams.enter_async_context(await server.connect()) for _ in range(2 * MAX_SMALL_BODIES)]
        for stream in streams:
            await stream.send_all(head + b"\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.05)  # every head is read, and no body is there
        for stream in streams:
            await stream.send_all(body)
        for stream in streams:
            with trio.fail_after(3):
                assert (await wire.read_until(stream, b"elapsed_s")).startswith(b"HTTP/1.1 200")


async def test_a_permit_is_free_again_whatever_happened():
    admission = BodyAdmission(max_large=1, max_small=1)
    for num_bytes in (None, 0, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with admission.admit(num_bytes):
                    raise ZeroDivisionError
        async with admission.admit(num_bytes):
            with pytest.raises(BodyBusyError):
                async with admission.admit(num_bytes):
                    pass


async def test_a_small_body_waits_for_a_permit_and_a_large_one_does_not(nursery: trio.Nursery):
    admission = BodyAdmission(max_large=1, max_small=1)
    taken = trio.Event()

    async def take() -> None:
        async with admission.admit(1):
            taken.set()

    async with admission.admit(1):
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        assert not taken.is_set()
    with trio.fail_after(0.5):
        await taken.wait()
    started = trio.current_time()
    async with admission.admit(None):
        with pytest.raises(BodyBusyError):
            async with admission.admit(None):
                pass
    assert trio.current_time() - started < SMALL_PATIENCE_S / 2
