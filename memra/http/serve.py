"""The server: accepts connections on a bound socket until it is told to stop, and then leaves none behind.

Refuses to know routes and models: it runs any ASGI application. Called by the composition root.

hypercorn's protocols are used, its `serve` is not: that one opens the port and says that it has started before it
notices that starting failed (its lifespan), and wraps a taken port in an exception group. Here the socket is bound
beforehand by `memra.http.address`, the application gets no lifespan events, and nothing is started that can fail after
`task_status.started`. A failure in one connection ends that connection and is logged.
"""

import contextlib
import logging
import socket
from functools import partial

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from memra.http.address import address_error, address_of
from memra.http.connection import Connection
from memra.settings import HttpSettings

BACKLOG = 1024
"""Connections that the kernel may hold before they are accepted; hypercorn's 100 refuses bursts of agents."""

GRACE_S = 0.5
"""After shutdown, answers that are already complete get this long to leave."""

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


def _config(settings: HttpSettings) -> Config:
    config = Config()
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
        self._live: set[trio.SocketStream] = set()
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
                for stream in tuple(self._live):
                    await trio.aclose_forcefully(stream)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        self._live.add(stream)
        connection = Connection(
            self._app, self._config, self._context, stream, write_timeout_s=self._settings.write_timeout_s
        )
        try:
            await connection.run()
        except Exception:  # noqa: BLE001  (one connection must not end the server)
            _log.exception("a connection failed and was closed")
        finally:
            self._live.discard(stream)
