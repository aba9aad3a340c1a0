"""Between the front door and the house: requests that the front door refused, for those who count them."""

from dataclasses import dataclass, field

from memra.messages.identity import Identity
from memra.types import Lane, ModelName, RequestId

NO_MODEL = ModelName("")
"""Of a request whose body was not understood."""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that went no further than the front door, and whose sender is known.

    Attributes:
        model: as asked for.
        route: path of the API.
    """

    request_id: RequestId
    identity: Identity = field(repr=False)
    lane: Lane
    route: str
    model: ModelName = NO_MODEL
    is_stream: bool = False
