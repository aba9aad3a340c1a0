"""One request and its connection: what quart-trio runs a request in, with the end of an answer repaired.

Refuses to know routes and wire formats. `memra.http.app` plugs `ExchangeConnection` into the application; routes and
answer bodies ask for `current_exchange()`.

What differs from quart-trio 0.12's `TrioASGIHTTPConnection`: hypercorn reports a disconnect while it finishes an
answer, quart-trio cancels the request on any disconnect, and that hits hypercorn's own bookkeeping half-way. Then
`Connection: close` does not close, and idle connections stay for ever. So the last message is shielded.
"""

from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, HTTPResponseBodyEvent, HTTPScope
from quart import Quart
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection

from memra.http.request_ids import new_id
from memra.http.visit import Visit

LAST_SEND_S = 10.0
"""Deadline of the shielded last message; only a client on HTTP/2 that grants no window can make it last so long."""

AFTER_DISCONNECT_S = 0.1
"""The same after a disconnect: hypercorn's bookkeeping takes microseconds, and a client that left never reads."""

_current: ContextVar["Exchange"] = ContextVar("memra_http_exchange")


class Exchange:
    """What a request may use until its very end; lives in the request's own task.

    Attributes:
        held: contexts that are closed when the request ends, however it ends, if nobody closed them before.
        nursery: the request's tasks; cancelled when the client leaves or the answer is complete.
        request_id: the id in the answer's headers and the log; routes whose answers have an id set it to that.
        visit: what is known of a request that accounts are kept of, until the house has it.
    """

    def __init__(self, send: ASGISendCallable, nursery: trio.Nursery, held: AsyncExitStack) -> None:
        """Keep the three handles."""
        self._send = send
        self.nursery = nursery
        self.held = held
        self.request_id = new_id()
        self.visit: Visit | None = None

    async def send_chunk(self, data: bytes) -> None:
        """Write a piece of an answer whose head is already sent, from any task of the request."""
        message = {"type": "http.response.body", "body": data, "more_body": True}
        await self._send(cast("HTTPResponseBodyEvent", message))


def current_exchange() -> Exchange:
    """Return the exchange of the running request."""
    return _current.get()


class ExchangeConnection(TrioASGIHTTPConnection):
    """Runs one request with an `Exchange`."""

    def __init__(self, app: Quart, scope: HTTPScope) -> None:
        """Prepare the shield for the last message."""
        super().__init__(app, scope)
        self._last_send = trio.CancelScope(shield=True)

    async def handle_messages(  # type: ignore[override]  # quart-trio adds the nursery to quart's arguments
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Take what the client sends, until it leaves or the answer is complete."""
        await super().handle_messages(nursery, request, receive)
        self._last_send.deadline = min(self._last_send.deadline, trio.current_time() + AFTER_DISCONNECT_S)

    async def handle_request(  # type: ignore[override]  # as above
        self, nursery: trio.Nursery, request: Request, send: ASGISendCallable
    ) -> None:
        """Run a request; leaves nothing open, also when it is cancelled."""

        async def send_whole(message: ASGISendEvent) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                with self._last_send:
                    self._last_send.deadline = trio.current_time() + LAST_SEND_S
                    await send(message)
            else:
                await send(message)

        async with AsyncExitStack() as held:
            _current.set(Exchange(send, nursery, held))
            await super().handle_request(nursery, request, send_whole)
