"""What is spoken on a connection: hypercorn's HTTP/1.1 and HTTP/2, with limits of ours and refusals that are JSON.

Refuses to know sockets and routes. `memra.http.connection` has one `Protocol` for every connection.

What differs from hypercorn 0.18:

- What is no HTTP, or not in time, is answered with an error in JSON rather than with an empty body; a wish for
  WebSocket, which nothing here speaks, is answered as the request that it comes with.
- A connection that has reached its age ends with its next answer; on HTTP/2 when no answer is under way, since neither
  h2 itself nor the clients made of it let one come behind a GOAWAY. (hypercorn's own end, after 1,000 requests, does
  not wait for that.)
- A connection on HTTP/2 without a stream is idle, also before its first one; data for a stream that was answered
  already is dropped rather than taken for a fault; and a stream whose reader grants no window is reset.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import h2.errors
import h2.exceptions
import h11
import trio
from h2.events import DataReceived
from h2.events import Event as Http2Event
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError, H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState

from memra.http.errors import ErrorReply, reply_to_malformed
from memra.http.request_ids import new_id
from memra.settings import HttpSettings

MAX_HEAD_BYTES = 32 << 10
"""Largest head of a request; nginx takes as much. Keys and trace contexts need a fraction of it."""

MAX_STREAMS = 128
"""Requests that run at once on one connection on HTTP/2."""

Address: TypeAlias = tuple[str, int] | None
Send: TypeAlias = Callable[[Event], Awaitable[None]]


def protocol_config() -> Config:
    """Return hypercorn's configuration with the limits of this module; the caller completes it."""
    config = Config()
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    config.h2_max_header_list_size = MAX_HEAD_BYTES
    config.h2_max_concurrent_streams = MAX_STREAMS
    config.keep_alive_max_requests = sys.maxsize  # connections end by age
    return config


class Protocol:
    """Turns a connection's bytes into requests, and answers into bytes; HTTP/2 where the client begins with it."""

    def __init__(  # noqa: PLR0913  (what hypercorn's protocols are made of)
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        *,
        task_group: TaskGroup,
        addresses: tuple[Address, Address],
        send: Send,
        settings: HttpSettings,
    ) -> None:
        """Begin with HTTP/1.1.

        Args:
            app: runs requests.
            config: from `protocol_config`.
            context: tells of the server's end.
            task_group: of the connection; requests run in it.
            addresses: the client's and the server's.
            send: takes bytes, and what becomes of the connection.
            settings: how old a connection becomes, and how long a write may take.
        """
        self._parts = (app, config, context, task_group, ConnectionState({}), False, *addresses, send)
        self._settings = settings
        self._send = send
        self._retire_at = trio.current_time() + settings.connection_max_age_s
        self._protocol: _Http1 | _Http2 = _Http1(self._parts, retire_at=self._retire_at)

    @property
    def is_reading_head(self) -> bool:
        """Whether part of a request's head has come, and not all of it."""
        return isinstance(self._protocol, _Http1) and self._protocol.is_reading_head

    async def handle(self, event: Event) -> None:
        """Take bytes, or the end of the connection."""
        try:
            await self._protocol.handle(event)
        except H2ProtocolAssumedError as assumed:
            http2 = self._change()
            await http2.initiate()
            await self._send(Updated(idle=True))
            data = assumed.data
        except H2CProtocolRequiredError as asked:
            http2 = self._change()
            await http2.initiate(asked.headers, asked.settings)
            data = asked.data
        else:
            return
        if data:
            await http2.handle(RawData(data))

    async def refuse_slow_head(self) -> None:
        """Answer a client whose head did not come in time."""
        if isinstance(self._protocol, _Http1):
            await self._protocol.refuse(408)

    def _change(self) -> "_Http2":
        self._protocol = http2 = _Http2(
            self._parts, retire_at=self._retire_at, write_timeout_s=self._settings.write_timeout_s
        )
        return http2


_Parts: TypeAlias = tuple[AppWrapper, Config, WorkerContext, TaskGroup, ConnectionState, bool, Address, Address, Send]


class _Http1(H11Protocol):
    """HTTP/1.1 with refusals in JSON, and an age."""

    def __init__(self, parts: _Parts, *, retire_at: float) -> None:
        super().__init__(*parts)
        self._retire_at = retire_at

    @property
    def is_reading_head(self) -> bool:
        connection = self.connection
        return (
            isinstance(connection, h11.Connection)
            and self.stream is None
            and connection.their_state is h11.IDLE
            and bool(connection.trailing_data[0])
        )

    async def refuse(self, status: int) -> None:
        """Answer with an error of that status, after which the connection closes."""
        await self._send_error_response(status)

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response) and trio.current_time() >= self._retire_at:
            event.headers.append((b"connection", b"close"))
        await super().stream_send(event)

    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(_without_upgrade(request))

    async def _send_error_response(self, status_code: int) -> None:
        reply = reply_to_malformed(status_code)
        await self._send_h11_event(h11.Response(status_code=reply.status, headers=raw_headers(reply)))
        await self._send_h11_event(h11.Data(data=reply.body))
        await self._send_h11_event(h11.EndOfMessage())


def _without_upgrade(request: h11.Request) -> h11.Request:
    """Return a request without the wish for another protocol, which may be ignored (RFC 9110, 7.8)."""
    headers = [(name, value) for name, value in request.headers if name != b"upgrade"]
    if len(headers) == len(request.headers):
        return request
    return h11.Request(method=request.method, headers=headers, target=request.target, http_version=request.http_version)


def raw_headers(reply: ErrorReply) -> list[tuple[bytes, bytes]]:
    """Return the head of an answer that no application gives, after which the connection closes."""
    headers = {
        "content-type": "application/json",
        "content-length": str(len(reply.body)),
        "connection": "close",
        "x-request-id": new_id(),
        **reply.headers,
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


class _Http2(H2Protocol):
    """HTTP/2 with an age, patience for late data and none for readers that do not read."""

    def __init__(self, parts: _Parts, *, retire_at: float, write_timeout_s: float) -> None:
        super().__init__(*parts)
        self._retire_at = retire_at
        self._write_timeout_s = write_timeout_s

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, EndBody):
            # hypercorn buffers an answer that its reader does not take, and waits at its end alone.
            with trio.move_on_after(self._write_timeout_s):
                await super().stream_send(event)
            return
        if isinstance(event, StreamClosed):
            buffer = self.stream_buffers.get(event.stream_id)
            if buffer is not None and buffer.buffer:
                await self._reset(event.stream_id)
        await super().stream_send(event)
        await self._retire()

    async def _send_data(self, stream_id: int) -> None:
        await super()._send_data(stream_id)
        await self._retire()

    async def _handle_events(self, events: Sequence[Http2Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                self._drop(event)
            else:
                await super()._handle_events([event])
        await self._flush()

    async def _retire(self) -> None:
        """End an old connection when its last answer has left; the client may send what came too late elsewhere."""
        is_busy = self.streams or self.stream_buffers
        if is_busy or self.closed or not self.keep_alive_requests or trio.current_time() < self._retire_at:
            return
        self.connection.close_connection()
        await self._flush()
        await self.send(Closed())

    def _drop(self, late: DataReceived) -> None:
        """Give the window of unwanted data back: the connection's other streams need it."""
        with suppress(h2.exceptions.ProtocolError):  # it is closed already
            self.connection.acknowledge_received_data(late.flow_controlled_length or 0, late.stream_id)

    async def _reset(self, stream_id: int) -> None:
        """Give a stream up whose reader takes nothing; its request is told that the client left."""
        with suppress(h2.exceptions.ProtocolError):  # it is closed already
            self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)
        await self._flush()
        buffer = self.stream_buffers.get(stream_id)
        if buffer is not None:
            await buffer.close()
        await self._close_stream(stream_id)
