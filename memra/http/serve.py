"""The server: accepts connections on a bound socket until it is told to stop, and then leaves none behind.

Refuses to know routes and models: it runs any ASGI application. Called by the composition root.

hypercorn's protocols are used, its `serve` is not: that one opens the port and says that it has started before it
notices that starting failed (its lifespan), and wraps a taken port in an exception group. Here the socket is bound
beforehand by `memra.http.address`, the application gets no lifespan events, and nothing is started that can fail after
`task_status.started`. A failure in one connection ends that connection and is logged. Where as many connections are
open as may be, the one that was idle longest makes room for the next; where none is idle, the next is refused.
"""

import contextlib
import logging
import resource
import socket
from functools import partial

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from memra.errors import OverloadedError
from memra.http.address import address_error, address_of
from memra.http.connection import Connection
from memra.http.errors import reply_to
from memra.http.protocols import protocol_config, raw_headers
from memra.settings import HttpSettings

BACKLOG = 1024
"""Connections that the kernel may hold before they are accepted; hypercorn's 100 refuses bursts of agents."""

GRACE_S = 0.5
"""After shutdown, answers that are already complete get this long to leave."""

SPARE_DESCRIPTORS = 512
"""Open files beside the connections: models, their repacked weights, pipes, and connections that are being refused."""

REFUSAL_S = 0.5
"""How long a connection that is one too many is kept, so that its client reads why."""

MAX_REFUSALS = 64
"""Connections that are being refused at once; more are closed without a word."""

_log = logging.getLogger("memra.http")


async def serve(
    app: ASGIFramework,
    listener: socket.socket,
    *,
    settings: HttpSettings,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve HTTP/1.1 and HTTP/2 (prior knowledge) until `shutdown` is set.

    After that no connection is accepted, idle ones are closed at once, and the others by force after `GRACE_S`: whoever
    wants to let answers finish waits for them before setting the event.

    Args:
        app: any ASGI application; it gets no lifespan events.
        listener: from `memra.http.address.bind`; closed on return.
        settings: timeouts.
        shutdown: set from the trio thread.
        task_status: started with the address, once connections are accepted.

    Raises:
        AddressError: another process took the port since it was bound.
    """
    address = address_of(listener)
    with contextlib.closing(listener):
        try:
            _allow_descriptors(settings.max_connections + SPARE_DESCRIPTORS)
            _prepare(listener, settings)
        except OSError as error:
            raise address_error(address, error) from error
        server = _Server(app, settings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.close_after, shutdown)
            task_status.started(address)
            await server.accept(trio.SocketListener(trio.socket.from_stdlib_socket(listener)), shutdown)
            nursery.cancel_scope.cancel()


def _prepare(listener: socket.socket, settings: HttpSettings) -> None:
    """Set what accepted connections inherit, and listen."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # The kernel's own write deadline, for peers that are gone without a word while nothing is being written by us.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(settings.write_timeout_s * 1000)))
    listener.listen(BACKLOG)


def _allow_descriptors(wanted: int) -> None:
    """Raise this process's own limit of open files as far as it may, where it is lower; shells begin with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def _config(settings: HttpSettings) -> Config:
    config = protocol_config()
    config.keep_alive_timeout = settings.keep_alive_s
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = _log
    return config


class _Server:
    """The live connections of one listener."""

    def __init__(self, app: ASGIFramework, settings: HttpSettings) -> None:
        self._app = ASGIWrapper(app)
        self._settings = settings
        self._config = _config(settings)
        self._context = WorkerContext(None)
        self._live: set[Connection] = set()
        self._num_refusals = 0
        self._connections = trio.CancelScope()

    async def accept(self, listener: trio.SocketListener, shutdown: trio.Event) -> None:
        """Serve every connection of a listener; returns when `shutdown` is set and the last one is gone."""
        with self._connections:
            async with trio.open_nursery() as connections:
                accepting = partial(trio.serve_listeners, self._serve_connection, [listener])
                async with trio.open_nursery() as acceptor:
                    acceptor.start_soon(partial(accepting, handler_nursery=connections))
                    await shutdown.wait()
                    acceptor.cancel_scope.cancel()
                await self._context.terminated.set()

    async def close_after(self, shutdown: trio.Event) -> None:
        """Close by force what is still open some time after `shutdown`, or at once when the server is cancelled."""
        try:
            await shutdown.wait()
            await trio.sleep(GRACE_S)
        finally:
            self._connections.cancel()
            # Cancelling is not enough: a write to a client that does not read is shielded until its deadline.
            with trio.CancelScope(shield=True):
                for connection in tuple(self._live):
                    await trio.aclose_forcefully(connection.stream)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        if len(self._live) >= self._settings.max_connections and not await self._make_room():
            await self._refuse(stream)
            return
        connection = Connection(self._app, self._config, self._context, stream, settings=self._settings)
        self._live.add(connection)
        try:
            await connection.run()
        except Exception:  # noqa: BLE001  (one connection must not end the server)
            _log.exception("a connection failed and was closed")
        finally:
            self._live.discard(connection)

    async def _make_room(self) -> bool:
        """Close the connection that was idle longest; false when none is idle."""
        idle = [(connection.idle_since, connection) for connection in self._live if connection.idle_since is not None]
        if not idle:
            return False
        _, longest = min(idle, key=lambda entry: entry[0])
        self._live.discard(longest)  # before it notices: several may make room at once
        await trio.aclose_forcefully(longest.stream)
        return True

    async def _refuse(self, stream: trio.SocketStream) -> None:
        """Say that there is no room, whatever was asked; the request is not read."""
        if self._num_refusals >= MAX_REFUSALS:
            await trio.aclose_forcefully(stream)
            return
        self._num_refusals += 1
        try:
            with trio.move_on_after(REFUSAL_S):
                await stream.send_all(_refusal())
                await stream.send_eof()
                # What is closed with unread bytes is reset, and the refusal may be lost with it.
                async for _ in stream:
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client did not wait for it
        finally:
            self._num_refusals -= 1
            await trio.aclose_forcefully(stream)


def _refusal() -> bytes:
    reply = reply_to(OverloadedError("As many connections are open as this server holds; try again shortly."))
    writer = h11.Connection(h11.SERVER)
    head = writer.send(h11.Response(status_code=reply.status, headers=raw_headers(reply)))
    return (head or b"") + reply.body
