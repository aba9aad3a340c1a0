"""The body of a streamed answer: parts of a reply go in, server-sent events come out.

Refuses to know the shape of the events (`memra.http.wire` does) and the engine. Runs in the request's own task; a
second task of the request only watches the clock, so that a token costs no timer and no task switch of its own.
"""

import logging
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

import trio
from quart.wrappers.response import ResponseBody

from memra.actors.contract import Reply
from memra.errors import OverloadedError
from memra.http.errors import FAULT_MESSAGE, is_unexpected, reply_to
from memra.http.exchange import Exchange
from memra.http.wire.streamed_answer import StreamedAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyPart, ReplyStarted
from memra.settings import HttpSettings

COMMENT = b": keepalive\n\n"
"""Ignored by every reader of events; keeps proxies from closing a stream whose prompt is long."""

_log = logging.getLogger("memra.http")


class EventStream(ResponseBody):
    """Iterates over the events of one reply; leaving it frees what the exchange holds.

    That happens before the client sees the end, so its next request finds the slot free. A failure half-way becomes an
    event, since the status line is long gone. It begins with a comment, since some proxies hold a head back until the
    first byte of a body; while nothing comes, another is sent every `settings.keepalive_comment_s`.
    """

    def __init__(
        self,
        reply: Reply,
        answer: StreamedAnswer,
        exchange: Exchange,
        settings: HttpSettings,
        *,
        begin: Callable[[ReplyStarted], bytes] | None = None,
    ) -> None:
        """Keep the parts; nothing is read before iteration.

        Args:
            reply: is streamed.
            answer: writes its events.
            exchange: the request's own.
            settings: say how often comments are sent.
            begin: writes the events that come before anything is generated, in shapes that have some.
        """
        self._parts: AsyncIterator[ReplyPart] = aiter(reply)
        self._answer = answer
        self._begin = begin
        self._exchange = exchange
        self._comment_every_s = settings.keepalive_comment_s
        self._watch = trio.CancelScope()
        self._has_begun = False
        self._is_waiting = False
        self._is_over = False
        self._active_at = 0.0

    async def __aenter__(self) -> Self:
        self._active_at = trio.current_time()
        self._exchange.nursery.start_soon(self._send_comments)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._watch.cancel()
        close_parts = getattr(self._parts, "aclose", None)
        if close_parts is not None:
            await close_parts()
        await self._exchange.held.__aexit__(exc_type, exc_value, tb)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return COMMENT
        while not self._is_over:
            self._is_waiting = True
            try:
                events = self._events_of(await self._parts.__anext__())
            except StopAsyncIteration:
                events = self._failure(OverloadedError("The answer ended before it was complete; send it again."))
            except Exception as error:  # noqa: BLE001  (whatever it is, the client is told, and faults are logged)
                events = self._failure(error)
            self._is_waiting = False
            self._active_at = trio.current_time()
            if events:
                return events
        raise StopAsyncIteration

    def _events_of(self, part: ReplyPart) -> bytes:
        if isinstance(part, ReplyDelta):
            return self._answer.delta(part)
        if isinstance(part, ReplyFinished):
            self._is_over = True
            return self._answer.finish(part)
        return b"" if self._begin is None else self._begin(part)

    def _failure(self, error: Exception) -> bytes:
        self._is_over = True
        if is_unexpected(error):
            _log.error("request %s failed: %s", self._exchange.request_id, FAULT_MESSAGE, exc_info=error)
        return self._answer.failure(reply_to(error).body)

    async def _send_comments(self) -> None:
        with self._watch:
            while True:
                await trio.sleep_until(self._active_at + self._comment_every_s)
                now = trio.current_time()
                if now >= self._active_at + self._comment_every_s:
                    self._active_at = now
                    # While the stream waits for its reader, another line would only make the queue longer.
                    if self._is_waiting:
                        await self._exchange.send_chunk(COMMENT)
