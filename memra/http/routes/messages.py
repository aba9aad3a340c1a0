"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, check_prompts, new_request_id, read_request, stamp
from memra.http.item_reply import respond_in_items
from memra.http.wire.messages_answer import MessagesAnswer
from memra.http.wire.messages_request import COUNT_DECODER, DECODER, read_count_request, read_messages_request
from memra.messages.texts import TokenizeRequest


def add_messages_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the routes; whatever version `anthropic-version` names, they answer as one."""

    @app.post("/v1/messages")
    async def messages() -> Response:
        request_id = new_request_id("msg", separator="_")
        caller, body = await read_request(door, request, DECODER)
        generation = read_messages_request(body, request_id=request_id, caller=caller)
        answer = MessagesAnswer(stamp(door, generation), stop_sequences=generation.stop_strings)
        return await respond_in_items(door, generation, answer, is_stream=bool(body.stream))

    @app.post("/v1/messages/count_tokens")
    async def count_tokens() -> Response:
        request_id = new_request_id("count", separator="_")
        caller, body = await read_request(door, request, COUNT_DECODER, is_accounted=False)
        counted = read_count_request(body, request_id=request_id, caller=caller)
        check_prompts([counted.prompt])
        tokenized = await door.house.tokenize(TokenizeRequest(request_id, counted.model, counted.prompt))
        count = {"input_tokens": len(tokenized.token_ids)}
        return Response(msgspec.json.encode(count), content_type="application/json")
