"""`POST /v1/chat/completions`."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, new_request_id, respond, stamp
from memra.http.request_body import read_json
from memra.http.request_headers import read_caller
from memra.http.wire.chat_answer import ChatAnswer
from memra.http.wire.chat_request import DECODER, read_chat_request


def add_chat_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the chat route."""

    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        request_id = new_request_id("chatcmpl")
        caller = read_caller(request.headers)
        body = await read_json(request, DECODER, door.settings)
        generation = read_chat_request(body, request_id=request_id, caller=caller)
        answer = ChatAnswer(stamp(door, generation), wants_usage_chunk=body.wants_usage_chunk)
        return await respond(door, generation, answer, is_stream=bool(body.stream))
