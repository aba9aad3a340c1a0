"""Between the request's path and admission: who may come in, and what they cost in the end."""

from dataclasses import dataclass, field

from memra.messages.generation import Usage
from memra.types import Lane, ModelName, RequestId, StopCause


@dataclass(frozen=True, slots=True)
class CheckKey:
    """Ask whether a key opens the server; answered with None, or refused with an `AuthenticationError`."""

    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AdmitRequest:
    """Ask for a slot; answered with `RequestAdmitted`, or refused with a `RequestError`."""

    request_id: RequestId
    model: ModelName
    lane: Lane
    api_key: str | None = field(default=None, repr=False)
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class RequestAdmitted:
    """A slot is held until `ReleaseSlot`.

    Attributes:
        tenant: who pays; `default` on a server without keys.
        slots_limit, slots_remaining: of the lane, this request included.
    """

    request_id: RequestId
    tenant: str
    lane: Lane
    slots_limit: int
    slots_remaining: int


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Give the slot back and record the end, whatever the end was; told exactly once per admitted request.

    Attributes:
        stop: None when the request did not finish (the client left, or it failed).
        usage: what was spent until then; None when the worker never took the prompt.
        failed: the request ended with an error of ours.
    """

    request_id: RequestId
    stop: StopCause | None = None
    usage: Usage | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """The one usage record of a request, handed to metering and to observers."""

    request_id: RequestId
    model: ModelName
    tenant: str
    lane: Lane
    stop: StopCause | None
    usage: Usage | None
    failed: bool
