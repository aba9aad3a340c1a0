"""Admission: decides who comes in, and writes down how each request ended.

It accepts `FindRequests` (asked; answered with the ids of a tenant's requests of some name), `AdmitRequest` (asked;
answered with `RequestAdmitted`) and, once the size of an admitted request is known, `ReserveWork` (asked; answered with
`WorkReserved`), both of which it may refuse with a `RequestError`; `ReportAdmissions` and `ListGuests` (asked; answered
with `AdmissionsReported` and `GuestListed`s); and, told, `ReleaseSlot` and `RefuseNewWork`. For every request that was
let in it hands one `RequestEnded` to an observer; one that is refused a place at the worker was not let in. Who sends a
request was found at the door and is believed. The checks come in the order model, drain, slot of the tenant and of the
lane, room of the lane. A failing observer is logged and disturbs nobody. The policies are `memra.gate`'s and
`memra.lanes`'; here are only their state's one owner and the worker's gauges, read and never waited for.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from memra.actors.base import ActorSystem, UnknownMessageError
from memra.actors.pulse import WorkerPulse
from memra.actors.trio_actor import TrioActor
from memra.actors.work_desk import WorkDesk
from memra.errors import BusyError, DrainingError, RequestError, UnknownModelError
from memra.gate.queueing import QueueLimits
from memra.gate.slot_reset import SlotReset
from memra.gate.slots import SlotTable, SlotTaken
from memra.lanes.metrics import zero_counts
from memra.lanes.policy import LanePolicy, LaneVerdict
from memra.messages.admission import (
    AdmissionsReported,
    AdmitRequest,
    FindRequests,
    GuestListed,
    ListGuests,
    ReleaseSlot,
    ReportAdmissions,
    RequestAdmitted,
    RequestEnded,
    ReserveWork,
    WorkReserved,
)
from memra.messages.lifecycle import RefuseNewWork
from memra.telemetry import names
from memra.telemetry.spans import stage_span
from memra.types import ModelName, RequestId

log = logging.getLogger(__name__)

_RETRY_AFTER_MAX_S = 60.0
"""Longest wait that a refusal names: load balancers and clients give up beyond a minute."""


_REASONS = {
    LaneVerdict.STARVED: "interactive answers wait",
    LaneVerdict.OVER_SLO: "interactive answers are slow enough already",
}


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """What admission goes by, beside slots.

    Attributes:
        lanes: how dark lanes make way.
        window_s: how long a step time counts, seconds.
        queue: how long the queue may become.
        slot_reset_s: when a slot may be free again, as long as nothing is measured, whole seconds.
    """

    lanes: LanePolicy = field(default_factory=LanePolicy)
    window_s: float = 30.0
    queue: QueueLimits = field(default_factory=QueueLimits)
    slot_reset_s: int = 2


@dataclass(slots=True)
class _Guest:
    model: ModelName
    admitted: RequestAdmitted
    client_id: str | None
    principal: str | None
    since: float
    part_of: RequestId | None = None
    num_prompt_tokens: int | None = None


class Admission(TrioActor):
    """See the module."""

    def __init__(  # noqa: PLR0913  (the composition root's parts)
        self,
        system: ActorSystem,
        *,
        models: Collection[ModelName],
        slots: SlotTable,
        observe: Callable[[RequestEnded], None],
        pulse: WorkerPulse,
        rules: AdmissionRules | None = None,
    ) -> None:
        """Take the policies.

        Args:
            system: the loop.
            models: names that are served; may grow while the actor lives.
            slots: owned by this actor from now on.
            observe: called in the trio thread with the record of each request that was admitted.
            pulse: where the worker leaves its gauges.
            rules: None for the defaults.
        """
        super().__init__(system)
        self._models = models
        self._slots = slots
        self._observe = observe
        self._rules = rules or AdmissionRules()
        self._desk = WorkDesk(pulse, self._rules.queue, window_s=self._rules.window_s)
        self._reset = SlotReset(self._rules.slot_reset_s)
        self._num_shed = zero_counts()
        self._guests: dict[RequestId, _Guest] = {}
        self._drain_deadline: float | None = None

    def handle(
        self, message: Any
    ) -> RequestAdmitted | WorkReserved | AdmissionsReported | tuple[RequestId, ...] | tuple[GuestListed, ...] | None:
        """Handle one message; see the module for those accepted."""
        match message:
            case FindRequests(name, tenant):
                return self._find(name, tenant)
            case AdmitRequest():
                with stage_span(names.SPAN_ADMISSION, message.traceparent):
                    return self._admit(message)
            case ReserveWork():
                return self._reserve(message)
            case ReportAdmissions():
                return self._report()
            case ListGuests():
                return tuple(_listed(guest) for guest in self._guests.values())
            case ReleaseSlot():
                self._release(message)
            case RefuseNewWork(deadline):
                self._drain_deadline = deadline
            case _:
                raise UnknownMessageError(self, message)
        return None

    def _find(self, name: str, tenant: str) -> tuple[RequestId, ...]:
        return tuple(
            request_id
            for request_id, guest in self._guests.items()
            if name in (request_id, guest.client_id) and guest.admitted.tenant == tenant
        )

    def _admit(self, request: AdmitRequest) -> RequestAdmitted:
        if request.part_of is not None:
            return self._admit_part(request, self._guests[request.part_of])
        if request.model not in self._models:
            known = ", ".join(self._models)
            raise UnknownModelError(f"No model {request.model!r} is served here; there are: {known}.", param="model")
        if self._drain_deadline is not None:
            wait_s = self._drain_deadline - trio.current_time()
            retry_after_s = min(max(1.0, wait_s), _RETRY_AFTER_MAX_S)
            raise DrainingError("The server is shutting down and takes no new work.", retry_after_s=retry_after_s)
        taken = self._take_slot(request)
        admitted = RequestAdmitted(
            request_id=request.request_id,
            tenant=request.identity.tenant,
            lane=request.lane,
            slots_limit=taken.limit,
            slots_remaining=taken.remaining,
            slots_reset_s=self._reset_s(),
        )
        self._guests[request.request_id] = _Guest(
            request.model, admitted, request.client_id, request.identity.principal, trio.current_time()
        )
        where = (request.request_id, admitted.tenant, request.lane.value, request.model)
        log.info("[meter] admit id=%s tenant=%s lane=%s model=%s", *where)
        return admitted

    def _admit_part(self, request: AdmitRequest, whole: _Guest) -> RequestAdmitted:
        """Let in what runs under another request's slot; it has none of its own to give back."""
        admitted = replace(whole.admitted, request_id=request.request_id)
        self._guests[request.request_id] = replace(
            whole, admitted=admitted, part_of=whole.admitted.request_id, num_prompt_tokens=None
        )
        return admitted

    def _take_slot(self, request: AdmitRequest) -> SlotTaken:
        """Hold a slot, if the tenant and the lane have one and the lane need not make way."""
        identity = request.identity
        try:
            taken = self._slots.take(
                request.request_id, request.lane, tenant=identity.tenant, tenant_limit=identity.max_inflight
            )
        except BusyError as error:
            self._num_shed[request.lane] += 1
            error.slots_reset_s = self._reset_s()
            raise
        before = self._slots.num_held(request.lane) - 1
        verdict = self._rules.lanes.may_admit(request.lane, self._desk.view(num_held=before))
        if verdict in _REASONS:
            self._slots.release(request.request_id)
            self._num_shed[request.lane] += 1
            raise BusyError(
                f"The {request.lane.value} lane makes way: {_REASONS[verdict]}; try again shortly.",
                slots_limit=taken.limit,
                slots_remaining=taken.remaining + 1,
            )
        return taken

    def _reserve(self, wanted: ReserveWork) -> WorkReserved:
        guest = self._guests.get(wanted.request_id)
        if guest is None:
            raise ValueError(f"request {wanted.request_id!r} was not admitted")
        guest.num_prompt_tokens = wanted.num_prompt_tokens
        try:
            return self._desk.reserve(wanted, guest.model, guest.admitted.lane)
        except RequestError as error:
            del self._guests[wanted.request_id]
            self._slots.release(wanted.request_id)
            if isinstance(error, BusyError):
                self._num_shed[guest.admitted.lane] += 1
                error.slots_limit = guest.admitted.slots_limit
                error.slots_remaining = guest.admitted.slots_remaining
                error.slots_reset_s = self._reset_s()
            raise

    def _reset_s(self) -> int:
        return self._reset.reset_s(self._desk.step_p50_ms)

    def _report(self) -> AdmissionsReported:
        return AdmissionsReported(
            num_shed=dict(self._num_shed),
            num_row_waits=self._desk.num_row_waits,
            num_memory_waits=self._desk.num_memory_waits,
            num_inflight=len(self._guests),
        )

    def _release(self, release: ReleaseSlot) -> None:
        guest = self._guests.pop(release.request_id, None)
        if guest is None:
            return  # refused, or its asker left before it heard the answer
        self._slots.release(release.request_id)
        self._desk.release(release.request_id)
        if release.stop is not None and release.usage is not None and release.usage.completion_tokens:
            self._reset.note_answer(release.usage.completion_tokens)
        record = RequestEnded(
            request_id=release.request_id,
            model=guest.model,
            tenant=guest.admitted.tenant,
            lane=guest.admitted.lane,
            stop=release.stop,
            usage=release.usage,
            failed=release.failed,
        )
        try:
            self._observe(record)
        except Exception:
            log.exception("an observer failed on the record of request %s", release.request_id)


def _listed(guest: _Guest) -> GuestListed:
    return GuestListed(
        guest.admitted.request_id,
        guest.model,
        guest.admitted.tenant,
        guest.principal,
        guest.admitted.lane,
        guest.part_of,
        guest.num_prompt_tokens,
        age_s=trio.current_time() - guest.since,
    )
