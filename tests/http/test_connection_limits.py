"""What a connection may cost: heads, numbers, ages, and streams whose clients do not play along."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import httpx
import pytest
import trio
import trio.testing
from h2.settings import SettingCodes
from hypercorn.config import Config

from memra.http.connection import Connection

Start = Callable[..., Awaitable[Any]]
CHAT = "/v1/chat/completions"
GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


def parse(answer: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


async def exchange(server: Any, wire: Any, data: bytes) -> tuple[int, dict[str, str], Any]:
    async with await server.connect() as stream:
        await stream.send_all(data)
        with trio.fail_after(3):
            return parse(await wire.read_to_end(stream))


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "malformed_request"),
        (GET + b"Content-Length: ten\r\n\r\n", 400, "malformed_request"),
        (GET + b"Transfer-Encoding: gzip\r\n\r\n", 501, "not_implemented"),
        (GET + b"X: " + b"a" * 40_000 + b"\r\nConnection: close\r\n\r\n", 431, "request_header_fields_too_large"),
        (GET + b"X: " + b"a" * 40_000, 431, "request_header_fields_too_large"),
    ],
)
async def test_what_is_no_request_is_told_so_in_json(
    start: Start, wire: Any, request_bytes: bytes, status: int, code: str
):
    got, headers, body = await exchange(await start(), wire, request_bytes)
    assert (got, body["error"]["code"], body["error"]["param"]) == (status, code, None)
    assert (headers["content-type"], headers["connection"]) == ("application/json", "close")
    assert headers.get("x-should-retry") == ("false" if status < 500 else None)
    assert re.fullmatch(r"req-[0-9a-f]{32}", headers["x-request-id"])


@pytest.mark.parametrize(("path", "status"), [("/livez", 200), ("/v1/realtime", 404)])
async def test_a_wish_for_websocket_is_an_ordinary_request(start: Start, wire: Any, path: str, status: int):
    server = await start()
    wish = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
    async with await server.connect() as stream:
        for _ in range(2):
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n{wish}\r\n".encode())
            with trio.fail_after(3):
                answer = await wire.read_until(stream, b"}}")
            assert (parse(answer)[0], parse(answer)[1]["content-type"]) == (status, "application/json")


async def test_a_head_that_does_not_end_is_408(start: Start, nursery: trio.Nursery, wire: Any):
    server = await start(head_timeout_s=0.2)

    async def trickle(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(GET)
            while True:  # bytes that keep coming do not make it longer
                await trio.testing.wait_all_tasks_blocked(0.02)
                await stream.send_all(b"X-A: 1\r\n")

    async with await server.connect() as stream:
        nursery.start_soon(trickle, stream)
        with trio.fail_after(3):
            status, headers, body = parse(await wire.read_until(stream, b"}}"))
    assert (status, body["error"]["code"]) == (408, "request_head_timeout")
    assert "x-should-retry" not in headers


async def test_waiting_for_the_next_request_is_not_waiting_for_a_head(start: Start, wire: Any):
    server = await start(head_timeout_s=0.05)
    async with await server.connect() as stream:
        for _ in range(2):
            await trio.testing.wait_all_tasks_blocked(0.1)
            await stream.send_all(GET + b"\r\n")
            assert (await wire.read_until(stream, b"}")).startswith(b"HTTP/1.1 200")


async def test_a_long_answer_does_not_count_as_a_slow_head(start: Start, fake_house: Any, wire: Any):
    gate = trio.Event()
    server = await start(fake_house(script=[gate, "done"]), head_timeout_s=0.05)
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat(stream=True)))
        await trio.testing.wait_all_tasks_blocked(0.1)
        gate.set()
        with trio.fail_after(2):
            await wire.read_until(stream, b"[DONE]")


async def test_a_client_that_leaves_while_idle_leaves_nothing(start: Start, wire: Any, monkeypatch: pytest.MonkeyPatch):
    ended = trio.Event()
    run = Connection.run

    async def watched(connection: Connection) -> None:
        await run(connection)
        ended.set()

    monkeypatch.setattr(Connection, "run", watched)
    server = await start()
    async with await server.connect() as stream:
        await stream.send_all(GET + b"\r\n")
        await wire.read_until(stream, b"}")
    with trio.fail_after(2):
        await ended.wait()


@pytest.mark.parametrize(("num_more", "status"), [(0, 200), (1, 431)])
async def test_a_request_has_a_number_of_headers_at_most(start: Start, wire: Any, num_more: int, status: int):
    lines = b"".join(b"X-%d: 1\r\n" % number for number in range(62 + num_more))
    got, headers, body = await exchange(await start(), wire, GET + b"Connection: close\r\n" + lines + b"\r\n")
    assert got == status
    if status != 200:
        assert body["error"]["code"] == "request_header_fields_too_large"
        assert headers["x-should-retry"] == "false"


@asynccontextmanager
async def connected(server: Any, count: int) -> AsyncIterator[list[trio.SocketStream]]:
    async with AsyncExitStack() as open_streams:
        streams = []
        for _ in range(count):
            streams.append(await open_streams.enter_async_context(await server.connect()))
            await trio.testing.wait_all_tasks_blocked(0.01)
        yield streams


async def test_the_connection_that_was_idle_longest_makes_room(start: Start, wire: Any):
    server = await start(max_connections=2)
    async with connected(server, 2) as (first, second):
        await first.send_all(GET + b"\r\n")
        await wire.read_until(first, b"}")
        async with await server.connect() as third:
            await third.send_all(GET + b"\r\n")
            with trio.fail_after(2):
                assert (await wire.read_until(third, b"}")).startswith(b"HTTP/1.1 200")
                assert await wire.read_to_end(second) == b""
        await first.send_all(GET + b"\r\n")
        assert (await wire.read_until(first, b"}")).startswith(b"HTTP/1.1 200")


async def test_where_every_connection_is_busy_the_next_is_refused(start: Start, fake_house: Any, wire: Any):
    gate = trio.Event()
    server = await start(fake_house(script=[gate, "done"]), max_connections=2)
    async with connected(server, 2) as streams:
        for stream in streams:
            await stream.send_all(wire.post(wire.chat(stream=True)))
            await wire.read_until(stream, b"keepalive")
        status, headers, body = await exchange(server, wire, GET + b"\r\n")
        assert (status, body["error"]["code"]) == (503, "overloaded")
        assert headers["retry-after-ms"] == "2000"
        gate.set()
        for stream in streams:
            with trio.fail_after(2):
                await wire.read_until(stream, b"[DONE]")
    assert (await server.get("/livez")).status_code == 200


async def test_an_old_connection_is_closed_with_its_answer(start: Start, wire: Any):
    server = await start(connection_max_age_s=0.05)
    async with await server.connect() as stream:
        await stream.send_all(GET + b"\r\n")
        assert b"connection: close" not in (await wire.read_until(stream, b"}")).lower()
        await trio.testing.wait_all_tasks_blocked(0.1)
        await stream.send_all(GET + b"\r\n")
        with trio.fail_after(2):
            answer = await wire.read_to_end(stream)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer.lower()


class Http2Client:
    """One connection on HTTP/2 by hand: what a well-behaved client does is done where a test asks for it."""

    def __init__(self, stream: trio.SocketStream, **initial: int) -> None:
        self.stream = stream
        self.http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        if initial:
            values = {SettingCodes[name]: value for name, value in initial.items()}
            self.http2.local_settings = h2.settings.Settings(initial_values=values)
        self.http2.initiate_connection()
        self.events: list[Any] = []

    async def request(self, stream_id: int, path: str, *, method: str = "GET", ends: bool = True) -> None:
        head = {":method": method, ":path": path, ":scheme": "http", ":authority": "x"}
        self.http2.send_headers(stream_id, [*head.items(), ("content-type", "application/json")], end_stream=ends)
        await self.flush()

    async def flush(self) -> None:
        await self.stream.send_all(self.http2.data_to_send())

    async def wait_for(self, kind: type[Any], *, stream_id: int | None = None) -> Any:
        """Read until there is an event of a kind, also one that came earlier."""
        with trio.fail_after(3):
            while True:
                for event in self.events:
                    if isinstance(event, kind) and (stream_id is None or event.stream_id == stream_id):
                        return event
                data = await self.stream.receive_some(65536)
                assert data, f"the connection ended before {kind.__name__}"
                self.events += self.http2.receive_data(data)
                await self.flush()


def status_of(event: Any) -> str:
    return dict(event.headers)[":status"]


async def test_http2_tells_how_many_streams_it_takes(start: Start):
    server = await start()
    async with await server.connect() as stream:
        client = Http2Client(stream)
        await client.flush()
        await client.wait_for(h2.events.RemoteSettingsChanged)
        assert client.http2.remote_settings.max_concurrent_streams == 128


async def test_a_connection_on_http2_without_a_request_is_idle(start: Start, wire: Any):
    server = await start(keep_alive_s=0.1)
    async with await server.connect() as stream:
        client = Http2Client(stream)
        await client.flush()
        with trio.fail_after(3):
            await wire.read_to_end(stream)


async def test_an_old_connection_on_http2_ends_after_the_answers_under_way(start: Start, fake_house: Any, wire: Any):
    gate = trio.Event()
    server = await start(fake_house(script=[gate, "done"]), connection_max_age_s=0.05)
    async with await server.connect() as stream:
        client = Http2Client(stream)
        await client.request(1, CHAT, method="POST", ends=False)
        client.http2.send_data(1, json.dumps(wire.chat(stream=True)).encode(), end_stream=True)
        await client.flush()
        await client.wait_for(h2.events.ResponseReceived, stream_id=1)
        await trio.testing.wait_all_tasks_blocked(0.1)
        await client.request(3, "/livez")
        answer = await client.wait_for(h2.events.ResponseReceived, stream_id=3)
        assert status_of(answer) == "200"
        gate.set()
        await client.wait_for(h2.events.StreamEnded, stream_id=1)
        await client.wait_for(h2.events.ConnectionTerminated)
        with trio.fail_after(3):
            await wire.read_to_end(stream)
    answered = [event for event in client.events if isinstance(event, h2.events.DataReceived) and event.stream_id == 1]
    assert b"[DONE]" in b"".join(event.data for event in answered)


async def test_an_answer_does_not_end_the_connection_of_a_client_that_still_sends(start: Start):
    server = await start(max_body_bytes=1024)
    async with await server.connect() as stream:
        client = Http2Client(stream)
        await client.request(1, "/nowhere", method="GET", ends=False)
        client.http2.send_data(1, b"x" * 100)
        await client.flush()
        answer = await client.wait_for(h2.events.ResponseReceived, stream_id=1)
        assert status_of(answer) == "404"
        await client.wait_for(h2.events.StreamEnded, stream_id=1)
        for _ in range(8):
            client.http2.send_data(1, b"x" * 1000)
            await client.flush()
        await client.request(3, "/livez")
        assert status_of(await client.wait_for(h2.events.ResponseReceived, stream_id=3)) == "200"


async def test_a_reader_on_http2_that_takes_nothing_is_cut_off_alone(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=["x" * 100_000] * 2), write_timeout_s=0.1)
    async with await server.connect() as stream:
        client = Http2Client(stream, INITIAL_WINDOW_SIZE=0)
        await client.request(1, CHAT, method="POST", ends=False)
        client.http2.send_data(1, json.dumps(wire.chat(stream=True)).encode(), end_stream=True)
        await client.flush()
        await client.wait_for(h2.events.StreamReset, stream_id=1)
        assert server.house.num_open == 0
        client.http2.increment_flow_control_window(1000, None)
        await client.request(3, "/livez")
        assert status_of(await client.wait_for(h2.events.ResponseReceived, stream_id=3)) == "200"


async def test_the_number_of_requests_does_not_end_a_connection(start: Start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Config, "keep_alive_max_requests", 3)
    server = await start()
    async with httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client:
        for _ in range(9):
            assert (await client.get(f"{server.url}/")).status_code == 200
