"""Mailboxes that can be closed: one read by a thread, one read by a trio task; any thread may put.

A message put into a closed mailbox is refused at once, so that nobody waits for an actor that died a moment ago. They
have no bound of their own, and need none: admission lets only so many requests in, each has one ask under way and tells
a handful of messages, an ask that its asker gave up is taken out again, and the worker's steps never come this way.
They know nothing of what they carry. Used by the two kinds of actors in this folder.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import trio
from pykka import ActorDeadError, messages
from pykka._envelope import Envelope


class ThreadMailbox:
    """A first-in first-out mailbox whose reader is one thread."""

    def __init__(self) -> None:
        self._envelopes: deque[Envelope[Any]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message; never blocks.

        Raises:
            ActorDeadError: the mailbox is closed and nobody waits for an answer; an ask gets the error as its answer.
        """
        with self._changed:
            if not self._is_closed:
                self._envelopes.append(envelope)
                self._changed.notify()
                return
        refuse(envelope)

    def get(self) -> Envelope[Any]:
        """Take the oldest message; blocks the reader's thread until there is one."""
        with self._changed:
            while not self._envelopes:
                self._changed.wait()
            return self._envelopes.popleft()

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._envelopes

    def withdraw(self, reply_to: object) -> None:
        """Forget the message that this future would have answered; nothing happens when it was read already."""
        with self._changed:
            _withdraw(self._envelopes, reply_to)

    def close(self) -> list[Envelope[Any]]:
        """Take no more messages; returns those that were not read. May be called twice."""
        with self._changed:
            self._is_closed = True
            left = list(self._envelopes)
            self._envelopes.clear()
        return left


class TrioMailbox:
    """A first-in first-out mailbox whose reader is one trio task."""

    def __init__(self) -> None:
        self._envelopes: deque[Envelope[Any]] = deque()
        self._arrived: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def bind(self, token: trio.lowlevel.TrioToken, thread: int) -> None:
        """Name the run and the thread of the reader; called once, before the first message."""
        self._token = token
        self._thread = thread

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message from any thread; never blocks.

        Raises:
            ActorDeadError: the mailbox is closed and nobody waits for an answer; an ask gets the error as its answer.
        """
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._envelopes.append(envelope)
        if is_closed:
            refuse(envelope)
        elif threading.get_ident() == self._thread:
            self._wake()
        elif self._token is not None:
            try:
                self._token.run_sync_soon(self._wake, idempotent=True)
            except trio.RunFinishedError:
                # The loop ended before the reader could close the mailbox.
                left = self.close()
                refuse_all(other for other in left if other is not envelope)
                if envelope.reply_to is None or any(other is envelope for other in left):
                    refuse(envelope)  # else another thread's put has answered it

    def get(self) -> Envelope[Any]:
        """Take the oldest message.

        Raises:
            IndexError: there is none.
        """
        return self._envelopes.popleft()

    def empty(self) -> bool:
        """Whether no message waits."""
        return not self._envelopes

    def withdraw(self, reply_to: object) -> None:
        """Forget the message that this future would have answered; nothing happens when it was read already."""
        with self._lock:
            _withdraw(self._envelopes, reply_to)

    async def receive(self) -> Envelope[Any]:
        """Take the oldest message; waits until there is one. Always a checkpoint."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._envelopes:
            await trio.lowlevel.cancel_shielded_checkpoint()
        while not self._envelopes:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._envelopes.popleft()

    def close(self) -> list[Envelope[Any]]:
        """Take no more messages; returns those that were not read. May be called twice."""
        with self._lock:
            self._is_closed = True
            left = list(self._envelopes)
            self._envelopes.clear()
        return left

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is not None:
            arrived.set()


def refuse(envelope: Envelope[Any]) -> None:
    """Answer a message that nobody will read: a stop is done, an ask gets the error.

    Raises:
        ActorDeadError: the message was told, so the sender is the only one who can know.
    """
    if envelope.reply_to is None:
        raise ActorDeadError("the actor stopped before it could take the message")
    if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001  (pykka has no public name for it)
        envelope.reply_to.set(None)
        return
    error = ActorDeadError("the actor stopped before it could answer")
    envelope.reply_to.set_exception((ActorDeadError, error, None))


def refuse_all(envelopes: Iterable[Envelope[Any]]) -> None:
    """Answer every message that nobody will read; those that were told are dropped, for their senders are long gone."""
    for envelope in envelopes:
        with contextlib.suppress(ActorDeadError):
            refuse(envelope)


def _withdraw(envelopes: deque[Envelope[Any]], reply_to: object) -> None:
    for place, envelope in enumerate(envelopes):
        # A stop is an order, whether or not somebody waits until it is carried out.
        if envelope.reply_to is reply_to and not isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001
            del envelopes[place]
            return
