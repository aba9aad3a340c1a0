"""A reply whose account is kept: what is generated is told as it is read, and the last part waits for the books.

Stands in for the reply of a walk, or of several joined, on the way out. Refuses to know how an account is kept, and
what a part says beyond its counts.
"""

from collections.abc import AsyncIterator, Callable
from typing import Self

from memra.actors.account import Account
from memra.actors.contract import Reply
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyPart, Usage
from memra.types import StopCause


class MeteredReply:
    """The parts of a reply; iterate once."""

    def __init__(self, reply: Reply, account: Account, *, usage: Callable[[], Usage | None]) -> None:
        """Take the reply.

        Args:
            reply: is read.
            account: of the request; ended by whoever opened it.
            usage: tells what was spent so far.
        """
        self._reply = reply
        self._parts: AsyncIterator[ReplyPart] = aiter(reply)
        self._account = account
        self._usage = usage
        self._is_late = False

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that this answer holds."""
        return self._reply.admitted

    def __aiter__(self) -> Self:
        """Iterate over the parts."""
        return self

    async def __anext__(self) -> ReplyPart:
        """Return the next part; the last one when it is paid for.

        Raises:
            RequestError: the answer cannot go on, or is complete and cannot be written into the accounts.
            StopAsyncIteration: it is complete.
        """
        try:
            part = await anext(self._parts)
            await self._account_for(part)
        except StopAsyncIteration:
            raise
        except Exception as error:
            # The reader may tell its client and close the reply as if nothing had happened.
            self._account.record(self._usage())
            await self._account.end(error)
            raise
        return part

    async def _account_for(self, part: ReplyPart) -> None:
        if isinstance(part, ReplyFinished):
            is_partial = self._is_late or part.stop is StopCause.DEADLINE
            await self._account.complete(part.usage, is_partial=is_partial)
            return
        self._account.record(self._usage())
        if isinstance(part, ReplyDelta):
            self._is_late |= part.stop is StopCause.DEADLINE
            self._account.capture(part.reasoning + part.text)
