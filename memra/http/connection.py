"""One TCP connection: hypercorn's, but its writes are quick, and bounded.

Refuses to know what the bytes mean. `memra.http.serve` makes one for every accepted connection.

What differs from `hypercorn.trio.tcp_server.TCPServer` 0.18:

- It writes within a shielded scope without a deadline, so a client that stops reading makes its request uncancellable
  for as long as it likes. Here a write that makes no end within a deadline closes the connection.
- It wakes the scheduler two or three times for every write. Here the kernel is offered the bytes at once, and trio is
  asked only when the kernel's buffer is full. Two rules come with that: a path that did not write everything at once
  must pass an unshielded checkpoint (or a body that never waits could not be cancelled any more), and the rest of a
  partial write must be shielded (or bytes in the middle of the stream would be lost).
"""

import os

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper

_WRITES_PER_CHECKPOINT = 8
"""A stream that never waits lets others run after this many writes."""


class Connection(TCPServer):
    """Reads requests from one client and writes the answers; `await connection.run()` serves it to its end.

    Runs in the trio thread. A cancelled write is finished, or the connection is closed: never half a chunk.
    """

    stream: trio.SocketStream  # type: ignore[assignment]  # hypercorn declares its TLS stream only

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        *,
        write_timeout_s: float,
    ) -> None:
        """Take over a stream that the caller closes in the end."""
        super().__init__(app, config, context, {}, stream)  # type: ignore[arg-type]  # as above
        self._write_timeout_s = write_timeout_s
        self._num_writes = 0

    async def protocol_send(self, event: Event) -> None:
        """Write bytes, or pass hypercorn's other events on."""
        if not isinstance(event, RawData):
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
        deadline = trio.current_time() + self._write_timeout_s
        is_broken = False
        # The wait for the lock is inside the shield: these bytes are already part of the protocol's state.
        with trio.CancelScope(shield=True, deadline=deadline) as scope:
            async with self.send_lock:
                try:
                    await self.stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    is_broken = True
        if is_broken or scope.cancelled_caught:
            await self._give_up()
        else:
            await trio.lowlevel.checkpoint()

    async def _give_up(self) -> None:
        # Closing passes a checkpoint that a cancelled request notices.
        await trio.aclose_forcefully(self.stream)
        await self.protocol.handle(Closed())
