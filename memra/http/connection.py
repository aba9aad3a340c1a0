"""One TCP connection: hypercorn's, but its writes are quick, and bounded, and so is the wait for a request's head.

Refuses to know what the bytes mean: `memra.http.protocols` does. `memra.http.serve` makes one for every accepted
connection.

What differs from `hypercorn.trio.tcp_server.TCPServer` 0.18:

- It writes within a shielded scope without a deadline, so a client that stops reading makes its request uncancellable
  for as long as it likes. Here a write that does not come on within a deadline closes the connection.
- It wakes the scheduler two or three times for every write. Here the kernel is offered the bytes at once, and trio is
  asked only when the kernel's buffer is full. Two rules come with that: a path that did not write everything at once
  must pass an unshielded checkpoint (or a body that never waits could not be cancelled any more), and the rest of a
  partial write must be shielded (or bytes in the middle of the stream would be lost).
- It waits for the head of a request as long as for the next request. Here a head that has begun must end soon.
"""

import math
import os
from collections.abc import Iterator

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper
from hypercorn.utils import parse_socket_addr

from memra.http.protocols import Protocol
from memra.settings import HttpSettings

_WRITES_PER_CHECKPOINT = 8
"""A stream that never waits lets others run after this many writes."""


_PIECE_BYTES = 1 << 16
"""The deadline of a write is one for each of these, so that a large answer may take long and a slow reader may not."""


class Connection(TCPServer):
    """Reads requests from one client and writes the answers; `await connection.run()` serves it to its end.

    Runs in the trio thread. A cancelled write is finished, or the connection is closed: never half a chunk.
    """

    stream: trio.SocketStream  # type: ignore[assignment]  # hypercorn declares its TLS stream only
    protocol: Protocol  # type: ignore[assignment]  # hypercorn's, completed

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        *,
        settings: HttpSettings,
    ) -> None:
        """Take over a stream that the caller closes in the end."""
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]  # as above
        self._settings = settings
        self._num_writes = 0
        self._idle_since: float | None = trio.current_time()

    @property
    def idle_since(self) -> float | None:
        """When the last request on this connection was over, on trio's clock; None while one runs."""
        return self._idle_since

    async def run(self) -> None:
        """Serve the client until it leaves, or nothing is heard of it."""
        socket = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = Protocol(
                    self.app,
                    self.config,
                    self.context,
                    task_group=task_group,
                    addresses=(client, server),
                    send=self.protocol_send,
                    settings=self._settings,
                )
                await self.idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass  # the client is gone
        finally:
            await self._close()

    async def _read_data(self) -> None:
        head_deadline = math.inf
        data: bytes | bytearray = b"-"
        while data:
            with trio.CancelScope(deadline=head_deadline) as patience:
                try:
                    data = await self.stream.receive_some(MAX_RECV)
                except (trio.ClosedResourceError, trio.BrokenResourceError):
                    break
            if patience.cancelled_caught:
                await self.protocol.refuse_slow_head()
                break
            await self.protocol.handle(RawData(bytes(data)))
            if not self.protocol.is_reading_head:
                head_deadline = math.inf
            elif head_deadline == math.inf:
                head_deadline = trio.current_time() + self._settings.head_timeout_s
        # Or a client that left would keep its socket until it counts as idle.
        await self.idle_task.stop()
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        """Write bytes, or pass hypercorn's other events on."""
        if not isinstance(event, RawData):
            if isinstance(event, Updated):
                self._idle_since = trio.current_time() if event.idle else None
            await super().protocol_send(event)
            return
        num_written = 0
        if not self.send_lock.locked():
            try:
                # Read the descriptor anew each time: after a close it is -1, never somebody else's.
                num_written = os.write(self.stream.socket.fileno(), event.data)
            except BlockingIOError:
                pass
            except OSError:
                await self._give_up()
                return
        if num_written == len(event.data):
            self._num_writes += 1
            if self._num_writes % _WRITES_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()
            return
        await self._send_rest(event.data[num_written:])

    async def _send_rest(self, data: bytes) -> None:
        is_broken = False
        # The wait for the lock is inside the shield: these bytes are already part of the protocol's state. It needs no
        # deadline, since whoever holds the lock has one.
        with trio.CancelScope(shield=True) as scope:
            async with self.send_lock:
                try:
                    for piece in _pieces(data):
                        scope.deadline = trio.current_time() + self._settings.write_timeout_s
                        await self.stream.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    is_broken = True
                scope.deadline = math.inf
        if is_broken or scope.cancelled_caught:
            await self._give_up()
        else:
            await trio.lowlevel.checkpoint()

    async def _give_up(self) -> None:
        # Closing passes a checkpoint that a cancelled request notices.
        await trio.aclose_forcefully(self.stream)
        await self.protocol.handle(Closed())


def _pieces(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))
