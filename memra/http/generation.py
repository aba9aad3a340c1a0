"""How a generation request is answered: opened first, then streamed or collected.

Refuses to know the shapes. A refusal comes before the first byte, so it has a status of its own; called by the
generation routes.
"""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import msgspec
from quart import request as current_request
from quart.wrappers import Request, Response
from werkzeug.exceptions import HTTPException

from memra.actors.contract import House, Reply
from memra.errors import BusyError, OverloadedError, RequestError
from memra.http.body_admission import BodyAdmission
from memra.http.event_stream import EventStream
from memra.http.exchange import current_exchange
from memra.http.ignored_fields import IgnoredFields
from memra.http.model_names import canonical_model
from memra.http.request_body import discard, read_json
from memra.http.request_headers import Caller, read_caller, read_credentials
from memra.http.request_ids import new_id
from memra.http.slot_headers import slot_headers
from memra.http.visit import Visit
from memra.http.wire.answer import Answer, Stamp, WholeChoice
from memra.http.wire.prompt_size import MAX_PROMPT_BYTES, check_prompt_size
from memra.http.wire.streamed_answer import StreamedAnswer
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest, Prompt, ReplyDelta, ReplyFinished, ReplyStarted
from memra.messages.texts import TextsRequest
from memra.settings import HttpSettings
from memra.types import ModelName, RequestId, StopCause

_Schema = TypeVar("_Schema", bound=msgspec.Struct)
_Request = TypeVar("_Request", GenerationRequest, TextsRequest)


@dataclass(frozen=True, slots=True)
class FrontDoor:
    """What every route gets: whom to ask, and how to speak.

    Attributes:
        fingerprint: sent as `system_fingerprint`.
        is_openai_completion: `/v1/completions` speaks OpenAI's shape rather than the native one.
        created: unix seconds of the server's start.
        bodies: permits for reading request bodies.
        ignored_fields: counts what bodies held and nobody knows.
    """

    house: House
    settings: HttpSettings
    fingerprint: str
    is_openai_completion: bool
    created: int
    bodies: BodyAdmission = field(default_factory=BodyAdmission)
    ignored_fields: IgnoredFields = field(default_factory=IgnoredFields)


def new_request_id(prefix: str, *, separator: str = "-") -> RequestId:
    """Make an id for a request and its answer; the exchange keeps it for headers and the log."""
    request_id = RequestId(new_id(prefix, separator=separator))
    current_exchange().request_id = request_id
    return request_id


async def read_request(
    door: FrontDoor, request: Request, decoder: msgspec.json.Decoder[_Schema], *, is_accounted: bool = True
) -> tuple[Caller, _Schema]:
    """Read a request in the order key, lane, body, so that nobody without a key costs or learns anything.

    Args:
        door: see there.
        request: is read.
        decoder: of its body.
        is_accounted: accounts are kept of it, also where it is refused.

    Raises:
        RequestError: the key, the lane or the body is refused.
        HTTPException: the body is not JSON by its type, or did not arrive in time.
    """
    try:
        identity = await door.house.identify(read_credentials(request.headers))
        visit = Visit(door.house, identity, request.path)
        if is_accounted:
            current_exchange().visit = visit
        caller = read_caller(request.headers, identity)
        visit.lane = caller.lane
        keep = partial(setattr, visit, "body") if is_accounted and await door.house.captures(identity) else None
        body, ignored = await read_json(request, decoder, settings=door.settings, admission=door.bodies, keep=keep)
    except (RequestError, HTTPException):
        await discard(request)
        raise
    if hasattr(body, "model"):
        body.model = visit.model = canonical_model(body.model, door.house.models)
    visit.is_stream = bool(getattr(body, "stream", False))
    door.ignored_fields.add(ignored)
    return caller, body


def hand_over(request: _Request) -> _Request:
    """Return a request as the house gets it, which accounts for it from now on."""
    exchange = current_exchange()
    visit, exchange.visit = exchange.visit, None
    return request if visit is None else visit.sent(request)


def check_prompts(prompts: Iterable[Prompt]) -> None:
    """Refuse prompts that hold too much text; they hold no more than the body that they came in.

    Raises:
        ContextLengthError: they do.
    """
    num_bytes = current_request.content_length
    if num_bytes is None or num_bytes > MAX_PROMPT_BYTES:
        check_prompt_size(prompts)


def stamp(door: FrontDoor, request: GenerationRequest) -> Stamp:
    """Return what is the same in all parts of a request's answer."""
    return Stamp(request.request_id, int(time.time()), ModelName(request.model), door.fingerprint)


async def respond(door: FrontDoor, request: GenerationRequest, answer: Answer, *, is_stream: bool) -> Response:
    """Open a reply and return the response.

    Raises:
        RequestError: the request was refused, or a collected answer could not go on.
    """
    if is_stream:
        return await respond_stream(door, request, answer)
    return await respond_whole(door, request, partial(_collect, answer=answer))


async def respond_whole(
    door: FrontDoor, request: GenerationRequest, collect: Callable[[Reply], Awaitable[bytes]]
) -> Response:
    """Open a reply, collect it into a JSON body, and return the response.

    Raises:
        RequestError: the request was refused, or the answer could not go on.
    """
    check_prompts((request.prompt, *request.further_prompts))
    async with door.house.open_reply(hand_over(request)) as reply:
        try:
            body = await collect(reply)
        except BusyError as error:
            _add_slots(error, reply.admitted)
            raise
        headers = limit_headers(reply.admitted)
    return Response(body, headers=headers, content_type="application/json")


async def respond_stream(
    door: FrontDoor,
    request: GenerationRequest,
    answer: StreamedAnswer,
    *,
    begin: Callable[[ReplyStarted], bytes] | None = None,
) -> Response:
    """Open a reply and return the response that streams it.

    Raises:
        RequestError: the request was refused.
    """
    check_prompts((request.prompt, *request.further_prompts))
    exchange = current_exchange()
    reply = await exchange.held.enter_async_context(door.house.open_reply(hand_over(request)))
    # X-Accel-Buffering is nginx's switch for passing events on as they come.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **limit_headers(reply.admitted)}
    stream = EventStream(reply, answer, exchange, door.settings, begin=begin)
    return Response(stream, headers=headers, content_type="text/event-stream; charset=utf-8")


async def _collect(reply: Reply, answer: Answer) -> bytes:
    deltas: defaultdict[int, list[ReplyDelta]] = defaultdict(list)
    stops: dict[int, StopCause] = {}
    finished: ReplyFinished | None = None
    async for part in reply:
        if isinstance(part, ReplyDelta):
            deltas[part.choice].append(part)
            if part.stop is not None:
                stops[part.choice] = part.stop
        elif isinstance(part, ReplyFinished):
            finished = part
            stops[part.choice] = part.stop
    if finished is None:
        raise OverloadedError("The answer ended before it was complete; send the request again.")
    if StopCause.DEADLINE in stops.values():
        finished = replace(finished, stop=StopCause.DEADLINE)
    choices = [WholeChoice(ReplyDelta.join(deltas[index], choice=index), stops[index]) for index in sorted(stops)]
    return answer.whole(choices, finished)


def limit_headers(admitted: RequestAdmitted) -> dict[str, str]:
    """Return what an answer tells of its lane's slots."""
    return slot_headers(admitted.slots_limit, admitted.slots_remaining, reset_s=admitted.slots_reset_s)


def _add_slots(error: BusyError, admitted: RequestAdmitted) -> None:
    """Let a failure after admission tell of the slot, as a refusal by admission does."""
    if error.slots_limit is None:
        error.slots_limit = admitted.slots_limit
        error.slots_remaining = admitted.slots_remaining
        error.slots_reset_s = admitted.slots_reset_s
