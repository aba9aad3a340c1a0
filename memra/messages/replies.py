"""Between requests, lifecycle and ingress: answers are opened, closed and cut."""

from dataclasses import dataclass

from memra.types import RequestId


@dataclass(frozen=True, slots=True)
class OpenReply:
    """Ask for the stream of a new request."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class CloseReply:
    """The request is over; unknown ids are ignored."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class CancelReply:
    """End one open answer with a `RequestCancelledError`; answered with whether there was such an answer."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class ListReplies:
    """Ask how far every open answer is; answered with a `ReplyProgress` by request id."""


@dataclass(frozen=True, slots=True)
class ReplyProgress:
    """How far an answer is, by the last that the worker said of it.

    Attributes:
        is_started: the worker has given the prompt room.
        completion_tokens: generated so far.
    """

    is_started: bool = False
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CutReplies:
    """End every open answer with a `DrainingError`.

    Attributes:
        message: for the clients.
    """

    message: str
