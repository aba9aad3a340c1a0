"""A place in a line: what an actor answers with when the answer itself takes longer than one message.

The actor grants or refuses it later; the asker's task waits, and may leave at any time without a word to the ticket.
Trio thread only.
"""

from typing import Generic, TypeVar

import trio

from memra.errors import RequestError

Value = TypeVar("Value")


class Ticket(Generic[Value]):
    """Granted or refused once; what comes later is ignored."""

    def __init__(self) -> None:
        self._is_done = trio.Event()
        self._value: Value | None = None
        self._error: RequestError | None = None

    def grant(self, value: Value) -> None:
        """Give the answer."""
        if not self._is_done.is_set():
            self._value = value
            self._is_done.set()

    def refuse(self, error: RequestError) -> None:
        """Give an error as the answer."""
        if not self._is_done.is_set():
            self._error = error
            self._is_done.set()

    async def wait(self) -> Value:
        """Wait for the answer. Always a checkpoint.

        Raises:
            RequestError: it was refused.
        """
        await self._is_done.wait()
        if self._error is not None:
            raise self._error
        assert self._value is not None  # noqa: S101  (set by grant, the only other way to be done)
        return self._value
