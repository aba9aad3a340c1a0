"""`POST /v1/chat/completions`."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, new_request_id, read_request, respond, stamp
from memra.http.wire.chat_answer import ChatAnswer
from memra.http.wire.chat_request import DECODER, read_chat_request


def add_chat_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the chat route."""

    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        request_id = new_request_id("chatcmpl")
        caller, body = await read_request(door, request, DECODER)
        generation = read_chat_request(body, request_id=request_id, caller=caller)
        wants_logprobs = generation.sampling.num_top_logprobs is not None
        mark = stamp(door, generation)
        answer = ChatAnswer(
            mark,
            wants_usage_chunk=body.wants_usage_chunk,
            wants_logprobs=wants_logprobs,
            names_ids=bool(body.return_tokens_as_token_ids),
        )
        return await respond(door, generation, answer, is_stream=bool(body.stream))
