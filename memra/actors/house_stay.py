"""What one request holds of the house, whatever it came for: its stream, its slot and its model.

Trade: asks the stations in whose order a request passes them, and remembers what may be held since. A station that
refuses gave nothing; an ask that was cancelled may have given. `leave` waits for nobody, so it is safe at any moment,
and gives everything back. It refuses to know prompts and answers. Used by the request's own task, through
`request_walk` and `text_walk`.
"""

from dataclasses import dataclass, field

from memra.actors.accounting import Accounting
from memra.actors.base import Ref, ask, tell_if_alive
from memra.actors.replies import ReplyStream
from memra.actors.shared_answers import SharedAnswers
from memra.actors.ticket import Ticket
from memra.actors.worker_link import WorkerLink
from memra.errors import BusyError, EngineFaultError, RequestError
from memra.gate.deadlines import DeadlineRules
from memra.messages.admission import AdmitRequest, ReleaseSlot, RequestAdmitted, ReserveWork, WorkReserved
from memra.messages.generation import Usage
from memra.messages.models import LeaseModel, ModelLeased, ReturnModel
from memra.messages.replies import CloseReply, OpenReply
from memra.types import ModelName, RequestId, StopCause


@dataclass(frozen=True, slots=True)
class Stations:
    """Where a request passes.

    Attributes:
        context_floor_tokens: context of a request that does not say how much it wants.
        binding: templating of the prompts whose answers are bound, so that no other prompt waits for a grammar.
        answers: what equal requests share, or None where each is computed.
        deadlines: how long a request may take.
        accounting: who is asked about requests, and paid for them.
    """

    ingress: Ref
    admission: Ref
    templating: Ref
    keeper: Ref
    worker: WorkerLink
    context_floor_tokens: int
    binding: Ref
    answers: SharedAnswers | None = None
    deadlines: DeadlineRules = field(default_factory=DeadlineRules)
    accounting: Accounting = field(default_factory=Accounting)


class HouseStay:
    """One request's; `leave` once, whatever came of it."""

    def __init__(self, request_id: RequestId, stations: Stations) -> None:
        """Hold nothing yet."""
        self._request_id = request_id
        self._stations = stations
        self._may_hold_stream = False
        self._may_hold_slot = False
        self._may_hold_model = False

    async def open_stream(self) -> ReplyStream:
        """Return where the worker's events arrive.

        Raises:
            ValueError: the id is in use.
        """
        self._may_hold_stream = True
        try:
            stream: ReplyStream = await ask(self._stations.ingress, OpenReply(self._request_id))
        except ValueError:
            self._may_hold_stream = False  # the id is another request's, and so is the stream
            raise
        return stream

    async def be_admitted(self, message: AdmitRequest) -> RequestAdmitted:
        """Take a slot.

        Raises:
            RequestError: refused.
        """
        self._may_hold_slot = True
        try:
            admitted: RequestAdmitted = await ask(self._stations.admission, message)
        except RequestError:
            self._may_hold_slot = False
            raise
        return admitted

    async def lease_model(self, model: ModelName, stream: ReplyStream) -> int:
        """Have the model loaded, and return its instance; ends when the stream is cut, for a load may outlast a drain.

        Raises:
            RequestError: it cannot be loaded.
        """
        self._may_hold_model = True
        return await lease_model(self._stations, self._request_id, model, stream=stream)

    async def reserve(self, message: ReserveWork) -> WorkReserved:
        """Ask for a place at the worker; a refusal takes the slot back too.

        Raises:
            RequestError: refused.
        """
        try:
            reserved: WorkReserved = await ask(self._stations.admission, message)
        except RequestError:
            self._may_hold_slot = False
            raise
        return reserved

    def leave(self, *, stop: StopCause | None, usage: Usage | None, error: BaseException | None) -> None:
        """Give everything back, and say how the request ended.

        Args:
            stop: None when it did not finish.
            usage: what was spent; None when the worker never took it.
            error: with which it ended, or None.
        """
        request_id, stations = self._request_id, self._stations
        if self._may_hold_model:
            tell_if_alive(stations.keeper, ReturnModel(request_id))
        if self._may_hold_stream:
            tell_if_alive(stations.ingress, CloseReply(request_id))
        if self._may_hold_slot:
            release = ReleaseSlot(request_id, stop=stop, usage=usage, failed=_is_failure_of_ours(error))
            tell_if_alive(stations.admission, release)


async def lease_model(
    stations: Stations, request_id: RequestId, model: ModelName, *, stream: ReplyStream | None = None
) -> int:
    """Have a model loaded, and return its instance; given back with `ReturnModel`, whatever came of this.

    Raises:
        RequestError: it cannot be loaded.
    """
    ticket: Ticket[ModelLeased] = await ask(stations.keeper, LeaseModel(request_id, model))
    if stream is not None:
        stream.when_cut(ticket.refuse)
    return (await ticket.wait()).held.instance


def _is_failure_of_ours(error: BaseException | None) -> bool:
    if isinstance(error, RequestError):
        return isinstance(error, (BusyError, EngineFaultError))
    return isinstance(error, Exception)
