"""How a generation request is answered: opened first, then streamed or collected.

Refuses to know the shapes. A refusal comes before the first byte, so it has a status of its own; called by the
generation routes.
"""

import time
import uuid
from dataclasses import dataclass

from quart.wrappers import Response

from memra.actors.contract import House, Reply
from memra.errors import OverloadedError
from memra.http.event_stream import EventStream
from memra.http.exchange import current_exchange
from memra.http.wire.answer import Answer, Stamp
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished
from memra.settings import HttpSettings
from memra.types import ModelName, RequestId, TokenId

RESET_S = 2
"""Advised wait when all slots of a lane are taken and nothing better is known."""


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """What every route gets: whom to ask, and how to speak.

    Attributes:
        fingerprint: sent as `system_fingerprint`.
        is_openai_completion: `/v1/completions` speaks OpenAI's shape rather than the native one.
        created: unix seconds of the server's start.
    """

    house: House
    settings: HttpSettings
    fingerprint: str
    is_openai_completion: bool
    created: int


def new_request_id(prefix: str) -> RequestId:
    """Make an id for a request and its answer; the exchange keeps it for headers and the log."""
    request_id = RequestId(f"{prefix}-{uuid.uuid4().hex}")
    current_exchange().request_id = request_id
    return request_id


def stamp(door: FrontDoor, request: GenerationRequest) -> Stamp:
    """Return what is the same in all parts of a request's answer."""
    return Stamp(request.request_id, int(time.time()), ModelName(request.model), door.fingerprint)


async def respond(door: FrontDoor, request: GenerationRequest, answer: Answer, *, is_stream: bool) -> Response:
    """Open a reply and return the response.

    Raises:
        RequestError: the request was refused, or a collected answer could not go on.
    """
    if is_stream:
        return await _stream(door, request, answer)
    async with door.house.open_reply(request) as reply:
        body = await _collect(reply, answer)
        headers = _limit_headers(reply.admitted)
    return Response(body, headers=headers, content_type="application/json")


async def _stream(door: FrontDoor, request: GenerationRequest, answer: Answer) -> Response:
    exchange = current_exchange()
    reply = await exchange.held.enter_async_context(door.house.open_reply(request))
    # X-Accel-Buffering is nginx's switch for passing events on as they come.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **_limit_headers(reply.admitted)}
    stream = EventStream(reply, answer, exchange, door.settings)
    return Response(stream, headers=headers, content_type="text/event-stream; charset=utf-8")


async def _collect(reply: Reply, answer: Answer) -> bytes:
    texts: list[str] = []
    token_ids: list[TokenId] = []
    finished: ReplyFinished | None = None
    async for part in reply:
        if isinstance(part, ReplyDelta):
            texts.append(part.text)
            token_ids.extend(part.token_ids)
        elif isinstance(part, ReplyFinished):
            finished = part
    if finished is None:
        raise OverloadedError("The answer ended before it was complete; send the request again.")
    return answer.whole("".join(texts), tuple(token_ids), finished)


def _limit_headers(admitted: RequestAdmitted) -> dict[str, str]:
    return {
        "x-ratelimit-limit": str(admitted.slots_limit),
        "x-ratelimit-remaining": str(admitted.slots_remaining),
        "x-ratelimit-reset": "0" if admitted.slots_remaining > 0 else str(RESET_S),
    }
