"""A request that accounts are kept of, from the moment that its sender is known until the house has it.

Refuses to know accounts: the house keeps them. Until it has the request, a refusal is told to it from here; afterwards
it knows by itself.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from memra.actors.contract import House
from memra.messages.generation import GenerationRequest
from memra.messages.identity import Identity
from memra.messages.refusals import NO_MODEL, RefusedRequest
from memra.messages.texts import TextsRequest
from memra.types import Lane, ModelName, RequestId

_Request = TypeVar("_Request", GenerationRequest, TextsRequest)


@dataclass(slots=True)
class Visit:
    """One request's.

    Attributes:
        house: keeps the accounts.
        route: path of the API.
        lane: as far as the headers were understood.
        model, is_stream: as far as the body was.
        body: as sent, where it is captured.
    """

    house: House
    identity: Identity
    route: str
    lane: Lane = Lane.INTERACTIVE
    model: ModelName = NO_MODEL
    is_stream: bool = False
    body: bytes | None = field(default=None, repr=False)

    def sent(self, request: _Request) -> _Request:
        """Return the request with what the house is told of its sending."""
        return replace(request, route=self.route, body=self.body)

    async def note_refusal(self, request_id: RequestId, error: Exception) -> None:
        """Tell the house that it will not get the request."""
        refused = RefusedRequest(request_id, self.identity, self.lane, self.route, self.model, self.is_stream)
        await self.house.note_refusal(refused, error)
