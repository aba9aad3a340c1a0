"""Admission: decides who comes in, and writes down how each request ended.

It accepts `CheckKey` (asked; answered with None) and `AdmitRequest` (asked; answered with `RequestAdmitted`), both of
which it may refuse with a `RequestError`, and, told, `ReleaseSlot` and `RefuseNewWork`. For every admitted request it
hands one `RequestEnded` to an observer. The checks come in the order key, model, drain, slot, so that nobody without a
key learns anything. A failing observer is logged and disturbs nobody. The policies are `memra.gate`'s; here is only
their state's one owner.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from memra.actors.base import ActorSystem, UnknownMessageError
from memra.actors.trio_actor import TrioActor
from memra.errors import DrainingError, UnknownModelError
from memra.gate.keys import KeyCheck
from memra.gate.slots import SlotTable
from memra.messages.admission import AdmitRequest, CheckKey, ReleaseSlot, RequestAdmitted, RequestEnded
from memra.messages.lifecycle import RefuseNewWork
from memra.telemetry import names
from memra.telemetry.spans import stage_span
from memra.types import ModelName, RequestId

log = logging.getLogger(__name__)

_RETRY_AFTER_MAX_S = 60.0
"""Longest wait that a refusal names: load balancers and clients give up beyond a minute."""


@dataclass(frozen=True, slots=True)
class _Guest:
    model: ModelName
    admitted: RequestAdmitted


class Admission(TrioActor):
    """See the module."""

    def __init__(
        self,
        system: ActorSystem,
        *,
        models: tuple[ModelName, ...],
        keys: KeyCheck,
        slots: SlotTable,
        observe: Callable[[RequestEnded], None],
    ) -> None:
        """Take the policies.

        Args:
            system: the loop.
            models: names that are served.
            keys: knows the server's API key.
            slots: owned by this actor from now on.
            observe: called in the trio thread with the record of each request that was admitted.
        """
        super().__init__(system)
        self._models = models
        self._keys = keys
        self._slots = slots
        self._observe = observe
        self._guests: dict[RequestId, _Guest] = {}
        self._drain_deadline: float | None = None

    def handle(self, message: Any) -> RequestAdmitted | None:
        """Handle one message; see the module for those accepted."""
        match message:
            case CheckKey(api_key):
                self._keys.identify(api_key)
            case AdmitRequest():
                with stage_span(names.SPAN_ADMISSION, message.traceparent):
                    return self._admit(message)
            case ReleaseSlot():
                self._release(message)
            case RefuseNewWork(deadline):
                self._drain_deadline = deadline
            case _:
                raise UnknownMessageError(self, message)
        return None

    def _admit(self, request: AdmitRequest) -> RequestAdmitted:
        tenant = self._keys.identify(request.api_key)
        if request.model not in self._models:
            known = ", ".join(self._models)
            raise UnknownModelError(f"No model {request.model!r} is served here; there are: {known}.", param="model")
        if self._drain_deadline is not None:
            wait_s = self._drain_deadline - trio.current_time()
            retry_after_s = min(max(1.0, wait_s), _RETRY_AFTER_MAX_S)
            raise DrainingError("The server is shutting down and takes no new work.", retry_after_s=retry_after_s)
        taken = self._slots.take(request.request_id, request.lane)
        admitted = RequestAdmitted(
            request_id=request.request_id,
            tenant=tenant,
            lane=request.lane,
            slots_limit=taken.limit,
            slots_remaining=taken.remaining,
        )
        self._guests[request.request_id] = _Guest(request.model, admitted)
        return admitted

    def _release(self, release: ReleaseSlot) -> None:
        guest = self._guests.pop(release.request_id, None)
        if guest is None:
            return  # refused, or its asker left before it heard the answer
        self._slots.release(release.request_id)
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
