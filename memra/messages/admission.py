"""Between the request's path and admission: who may come in, and what they cost in the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memra.messages.generation import Usage
from memra.messages.identity import ANYBODY, Identity
from memra.types import Lane, ModelName, RequestId, StopCause


@dataclass(frozen=True, slots=True)
class AdmitRequest:
    """Ask for a slot; answered with `RequestAdmitted`, or refused with a `RequestError`.

    Attributes:
        identity: whoever sends it, as it was found at the door.
        part_of: a request that holds a slot; this one runs under the same.
        client_id: the client's own name for it, by which it can be found too; None has none.
    """

    request_id: RequestId
    model: ModelName
    lane: Lane
    identity: Identity = ANYBODY
    traceparent: str | None = None
    part_of: RequestId | None = None
    client_id: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RequestAdmitted:
    """A slot is held until `ReleaseSlot`.

    Attributes:
        tenant: who pays; `default` on a server without keys.
        slots_limit, slots_remaining: of the lane, or of the tenant where that has fewer; this request included.
        slots_reset_s: whole seconds after which a slot may be free, where none is.
    """

    request_id: RequestId
    tenant: str
    lane: Lane
    slots_limit: int
    slots_remaining: int
    slots_reset_s: int = 2


@dataclass(frozen=True, slots=True)
class FindRequests:
    """Ask for the requests in the house that belong to a tenant and have a name; answered with their ids.

    Attributes:
        name: the id of one, or what the client itself called some.
    """

    name: str
    tenant: str


@dataclass(frozen=True, slots=True)
class ReserveWork:
    """Ask for a place at the worker, once the size of an admitted request is known.

    Answered with `WorkReserved`, or refused with a `RequestError`, which gives the slot back as well.

    Attributes:
        max_new_tokens: upper bound on the answer, at least 0.
        may_shorten: the context, not the client, set that bound.
        remaining_s: until the request's deadline, seconds.
        prompt_param: request field that holds the prompt, for errors.
    """

    request_id: RequestId
    num_prompt_tokens: int
    max_new_tokens: int
    may_shorten: bool = False
    remaining_s: float | None = None
    prompt_param: str | None = None


@dataclass(frozen=True, slots=True)
class WorkReserved:
    """The request may be submitted.

    Attributes:
        max_new_tokens: as asked, or less where the model's memory holds no more.
        wait_s: estimate of its time in the queue, seconds; None when nothing is known.
    """

    max_new_tokens: int
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class ReportAdmissions:
    """Ask admission for `AdmissionsReported`."""


@dataclass(frozen=True, slots=True)
class AdmissionsReported:
    """Counters of admission since the start, and a gauge.

    Attributes:
        num_shed: requests that were turned away for want of room, or for the sake of a better lane, by lane.
        num_row_waits: requests that were let in to wait for a row.
        num_memory_waits: requests that were let in to wait for cache memory.
        num_inflight: requests in the house.
    """

    num_shed: Mapping[Lane, int]
    num_row_waits: int = 0
    num_memory_waits: int = 0
    num_inflight: int = 0


@dataclass(frozen=True, slots=True)
class ListGuests:
    """Ask admission for every request in the house; answered with a tuple of `GuestListed`."""


@dataclass(frozen=True, slots=True)
class GuestListed:
    """A request that admission has let in.

    Attributes:
        principal: names the key that it came with, never the key; None without one.
        part_of: the request under whose slot it runs; None for one with its own.
        prompt_tokens: None until they were counted.
        age_s: since it came in, seconds.
    """

    request_id: RequestId
    model: ModelName
    tenant: str
    principal: str | None
    lane: Lane
    part_of: RequestId | None
    prompt_tokens: int | None
    age_s: float


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
