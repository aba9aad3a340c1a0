"""Ingress: opens and closes the answers of requests; the first and the last station of each.

It accepts `OpenReply` (asked; answered with a `ReplyStream`), `CancelReply` (asked; answered with whether there was
anything to cancel), `ListReplies` (asked; answered with how far each is), `CloseReply` and `CutReplies` (told). It
sends nothing: the worker's events come to the same table straight from the loop, one call a step, without a mailbox in
between. A request id that is in use is the asker's error; ingress itself has nothing to fail at.
"""

from typing import Any

from memra.actors.base import ActorSystem, UnknownMessageError
from memra.actors.replies import ReplyStream, ReplyTable
from memra.actors.trio_actor import TrioActor
from memra.errors import DrainingError, RequestCancelledError
from memra.messages.replies import CancelReply, CloseReply, CutReplies, ListReplies, OpenReply, ReplyProgress
from memra.types import RequestId


class Ingress(TrioActor):
    """See the module."""

    def __init__(self, system: ActorSystem, *, replies: ReplyTable) -> None:
        """Take the table that the worker's events are delivered to."""
        super().__init__(system)
        self._replies = replies

    def handle(self, message: Any) -> ReplyStream | dict[RequestId, ReplyProgress] | bool | None:
        """Handle one message; see the module for those accepted."""
        match message:
            case OpenReply(request_id):
                return self._replies.open(request_id)
            case CloseReply(request_id):
                self._replies.close(request_id)
            case CancelReply(request_id):
                return self._replies.cut(request_id, RequestCancelledError("The request was cancelled, as asked."))
            case ListReplies():
                return self._replies.progress()
            case CutReplies(text):
                self._replies.cut_all(DrainingError(text))
            case _:
                raise UnknownMessageError(self, message)
        return None
