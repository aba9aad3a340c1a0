"""The server itself, and the three repairs: each with a control that fails when the stock classes change."""

import gc
import logging
import resource
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import hypercorn.trio
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from quart import Response
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection

import memra.http.serve
from memra.errors import AddressError
from memra.http.address import address_of, bind
from memra.http.connection import Connection
from memra.http.exchange import ExchangeConnection
from memra.http.serve import serve
from memra.settings import HttpSettings

Start = Callable[..., Awaitable[Any]]

NUM_CLIENTS = 16
"""The stock classes get some endings right by chance, never all of these."""

PATIENCE_S = 1.0
"""How long a control waits for what the stock classes never do."""


class StockConnection(TCPServer):
    def __init__(self, app: Any, config: Any, context: Any, stream: Any, *, settings: HttpSettings) -> None:
        super().__init__(app, config, context, {}, stream)
        del settings  # it has no deadline


class Firehose:
    """An application whose one answer never ends and never waits by itself."""

    def __init__(self) -> None:
        self.stopped = trio.Event()
        self.quart = QuartTrio("firehose")
        self.quart.asgi_http_class = ExchangeConnection
        self.quart.config["RESPONSE_TIMEOUT"] = None
        self.quart.add_url_rule("/", view_func=self.answer)

    async def answer(self) -> Response:
        return Response(self.flood())

    async def flood(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 8192
        finally:
            self.stopped.set()


async def run(nursery: trio.Nursery, app: Any, **settings: Any) -> tuple[str, trio.Event]:
    shutdown = trio.Event()
    running = partial(serve, app, bind("127.0.0.1:0"), settings=HttpSettings(**settings), shutdown=shutdown)
    return await nursery.start(running), shutdown


async def connect(address: str) -> trio.SocketStream:
    host, _, port = address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


def small_app(connection_class: type) -> QuartTrio:
    app = QuartTrio("small")
    app.asgi_http_class = connection_class

    @app.get("/")
    async def answer() -> str:
        return "hello"

    return app


def test_port_zero_is_resolved():
    with bind("127.0.0.1:0") as listener:
        assert address_of(listener) == f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_in_use_is_one_clear_line():
    with bind("127.0.0.1:0") as first:
        first.listen()
        with pytest.raises(AddressError, match=r"Cannot listen on 127\.0\.0\.1:\d+: the address is in use"):
            bind(address_of(first))


@pytest.mark.parametrize(
    "address", ["", "8080", "localhost", "localhost:", ":8080", "localhost:http", "a:65536", "::1:80", "a:-1", "a:²"]
)
def test_text_that_is_no_address_is_refused(address: str):
    with pytest.raises(AddressError, match="write it as host:port"):
        bind(address)


def test_a_foreign_address_is_refused():
    with pytest.raises(AddressError, match="this machine has no such address"):
        bind("192.0.2.1:0")


def test_an_unknown_host_is_refused():
    with pytest.raises(AddressError, match="unknown"):
        bind("no-such-host.invalid:80")


async def test_a_port_taken_after_binding_is_an_address_error(nursery: trio.Nursery):
    with bind("127.0.0.1:0") as first, bind(address_of(first)) as second:
        first.listen()
        with pytest.raises(AddressError, match="in use"):
            await serve(small_app(ExchangeConnection), second, settings=HttpSettings(), shutdown=trio.Event())


async def test_stock_serve_hides_a_taken_port_in_a_group():
    config = Config()
    config.errorlog = None
    with bind("127.0.0.1:0") as first:
        first.listen()
        config.bind = [address_of(first)]
        with pytest.raises(ExceptionGroup):
            await hypercorn.trio.serve(small_app(ExchangeConnection), config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its own socket open, too
        gc.collect()


async def failing_lifespan(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no model"})


async def test_stock_serve_says_started_before_a_startup_failure():
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    started = []
    with pytest.raises(ExceptionGroup):
        async with trio.open_nursery() as nursery:
            started.append(await nursery.start(partial(hypercorn.trio.serve, failing_lifespan, config, mode="asgi")))
    assert started


async def test_the_application_gets_no_lifespan_events(nursery: trio.Nursery):
    kinds = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kinds.append(scope["type"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    address, _ = await run(nursery, app)
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{address}/")).status_code == 204
    assert kinds == ["http"]


@pytest.mark.parametrize(("connection_class", "closes"), [(ExchangeConnection, True), (TrioASGIHTTPConnection, False)])
@pytest.mark.parametrize("header", [b"Connection: close\r\n", b""], ids=["asked", "idle"])
async def test_finished_connections_are_closed(
    nursery: trio.Nursery, wire: Any, connection_class: type, *, closes: bool, header: bytes
):
    address, _ = await run(nursery, small_app(connection_class), keep_alive_s=60 if header else 0.3)
    closed = []

    async def request() -> None:
        async with await connect(address) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n")
            closed.append(await wire.read_to_end(stream))

    with trio.move_on_after(PATIENCE_S):
        async with trio.open_nursery() as clients:
            for _ in range(NUM_CLIENTS):
                clients.start_soon(request)
    assert (len(closed) == NUM_CLIENTS) is closes
    assert all(answer.endswith(b"hello") for answer in closed)


async def test_a_connection_is_used_again(nursery: trio.Nursery, wire: Any):
    address, _ = await run(nursery, small_app(ExchangeConnection))
    async with await connect(address) as stream:
        for _ in range(3):
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" in await wire.read_until(stream, b"hello")


@pytest.mark.parametrize(("connection", "cuts_off"), [(Connection, True), (StockConnection, False)])
async def test_a_client_that_stops_reading_is_cut_off(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, connection: type, *, cuts_off: bool
):
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)  # the kernel's deadline would hide ours
    monkeypatch.setattr(memra.http.serve, "Connection", connection)
    firehose = Firehose()
    address, _ = await run(nursery, firehose.quart, write_timeout_s=0.1)
    async with await connect(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with trio.move_on_after(PATIENCE_S) as waiting:
            await firehose.stopped.wait()
        assert waiting.cancelled_caught is not cuts_off


async def test_a_reader_that_comes_on_may_take_longer_than_a_write(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)
    app = QuartTrio("large")
    app.asgi_http_class = ExchangeConnection
    expected = bytes(24 << 20)  # several times what the kernel's buffers hold

    @app.get("/")
    async def answer() -> Response:
        return Response(expected)

    address, _ = await run(nursery, app, write_timeout_s=0.3)
    received = 0
    started = trio.current_time()
    async with await connect(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while data := await stream.receive_some(1 << 18):
            received += len(data)
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert received > len(expected)
    assert trio.current_time() - started > 0.6


def test_the_limit_of_open_files_is_raised_for_the_connections(monkeypatch: pytest.MonkeyPatch):
    limits = {"soft": 1024, "hard": 4096}
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limits["soft"], limits["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, pair: limits.update(soft=pair[0], hard=pair[1]))
    for wanted, soft in ((1000, 1024), (1536, 1536), (10_000, 4096), (2000, 4096)):
        memra.http.serve._allow_descriptors(wanted)
        assert limits == {"soft": soft, "hard": 4096}


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
async def test_the_kernel_has_a_write_deadline_too(nursery: trio.Nursery):
    listener = bind("127.0.0.1:0")
    running = partial(
        serve, small_app(ExchangeConnection), listener, settings=HttpSettings(write_timeout_s=7), shutdown=trio.Event()
    )
    await nursery.start(running)
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000


async def test_an_answer_that_never_waits_ends_when_its_client_leaves(nursery: trio.Nursery, wire: Any):
    firehose = Firehose()
    address, _ = await run(nursery, firehose.quart)
    async with await connect(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await wire.read_until(stream, b"xxxx")
    with trio.fail_after(2):
        await firehose.stopped.wait()


async def test_a_slow_reader_loses_no_byte(nursery: trio.Nursery, wire: Any):
    app = QuartTrio("numbers")
    app.asgi_http_class = ExchangeConnection
    expected = b"".join(b"%08d" % number for number in range(1_000_000))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(expected), 77_777):
            yield expected[at : at + 77_777]

    @app.get("/")
    async def answer() -> Response:
        return Response(pieces(), headers={"Content-Length": str(len(expected))})

    address, _ = await run(nursery, app)
    async with await connect(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked(0.05)
        answer_bytes = await wire.read_to_end(stream)
    assert answer_bytes.partition(b"\r\n\r\n")[2] == expected


async def test_small_writes_go_to_the_kernel_at_once(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, wire: Any):
    address, _ = await run(nursery, small_app(ExchangeConnection))
    async with await connect(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

        async def refuse(_stream: trio.SocketStream, _data: bytes) -> None:
            raise AssertionError("asked trio first")

        monkeypatch.setattr(trio.SocketStream, "send_all", refuse)
        assert b"200" in await wire.read_until(stream, b"hello")


async def test_shutdown_closes_idle_and_busy_connections(wire: Any):
    firehose = Firehose()
    async with trio.open_nursery() as nursery:
        address, shutdown = await run(nursery, firehose.quart, write_timeout_s=60)
        idle, busy = await connect(address), await connect(address)
        async with idle, busy:
            await busy.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await wire.read_until(busy, b"xxxx")
            shutdown.set()
            with trio.fail_after(3):
                await firehose.stopped.wait()
                assert await wire.read_to_end(idle) == b""
            with pytest.raises(OSError, match="all attempts to connect"):
                await connect(address)
    # Leaving the nursery means that serve() returned.


async def test_cancelling_the_server_does_not_wait_for_a_stalled_client():
    firehose = Firehose()
    with trio.fail_after(3):
        async with trio.open_nursery() as nursery:
            address, _ = await run(nursery, firehose.quart, write_timeout_s=60)
            async with await connect(address) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await trio.testing.wait_all_tasks_blocked(0.05)
                nursery.cancel_scope.cancel()


async def test_http2_by_prior_knowledge(nursery: trio.Nursery):
    address, _ = await run(nursery, small_app(ExchangeConnection))
    async with httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client:
        for _ in range(3):
            reply = await client.get(f"http://{address}/")
            assert (reply.http_version, reply.text) == ("HTTP/2", "hello")


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
MALFORMED = [
    b"\r\n\r\n",
    b"\x00\x01\x02\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET \xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    HEAD + b"X\x00: a\r\n\r\n",
    HEAD + b"Content-Length: -1\r\n\r\n",
    HEAD + b"Content-Length: ten\r\n\r\n",
    HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    HEAD + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
    HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: !!\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc",
]


async def test_malformed_requests_leave_the_server_alive(
    nursery: trio.Nursery, wire: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.CRITICAL)
    address, _ = await run(nursery, small_app(ExchangeConnection), keep_alive_s=0.1)
    for request in MALFORMED:
        async with await connect(address) as stream:
            await stream.send_all(request)
            await stream.send_eof()
            with trio.fail_after(2):
                try:
                    await wire.read_to_end(stream)
                except trio.BrokenResourceError:  # reset by the server: as good as closed
                    continue
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{address}/")).text == "hello"


async def test_a_failure_in_one_connection_is_logged_and_ends_it_alone(
    nursery: trio.Nursery, wire: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    address, _ = await run(nursery, small_app(ExchangeConnection))

    async def fail(_self: Connection) -> None:
        raise ValueError("broken on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "run", fail)
        async with await connect(address) as stream:
            assert await wire.read_to_end(stream) == b""
    assert "broken on purpose" in caplog.text
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{address}/")).text == "hello"
