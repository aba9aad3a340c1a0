"""`POST /v1/completions`, in OpenAI's shape or in the native one."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, new_request_id, read_request, respond, stamp
from memra.http.wire.answer import Answer
from memra.http.wire.completion_answer import CompletionAnswer
from memra.http.wire.completion_request import DECODER, check_native, read_completion_request
from memra.http.wire.native_answer import NativeAnswer


def add_completion_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the completion route."""

    @app.post("/v1/completions")
    async def completions() -> Response:
        request_id = new_request_id("cmpl")
        caller, body = await read_request(door, request, DECODER)
        generation = read_completion_request(body, request_id=request_id, caller=caller)
        mark = stamp(door, generation)
        answer: Answer
        if door.is_openai_completion:
            wants_logprobs = generation.sampling.num_top_logprobs is not None
            answer = CompletionAnswer(
                mark,
                wants_usage_chunk=body.wants_usage_chunk,
                wants_logprobs=wants_logprobs,
                names_ids=bool(body.return_tokens_as_token_ids),
            )
        else:
            check_native(body)
            answer = NativeAnswer(mark)
        return await respond(door, generation, answer, is_stream=bool(body.stream))
