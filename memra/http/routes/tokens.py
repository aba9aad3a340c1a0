"""`POST /v1/tokenize` and `POST /v1/detokenize`, also without the version.

No slot is taken, and nothing is computed.
"""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, check_prompts, new_request_id, read_request
from memra.http.wire.tokens import (
    DETOKENIZE_DECODER,
    TOKENIZE_DECODER,
    detokenize_answer,
    read_detokenize_request,
    read_tokenize_request,
    tokenize_answer,
)


def add_token_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the routes between words and tokens."""

    @app.post("/v1/tokenize")
    @app.post("/tokenize")
    async def tokenize() -> Response:
        request_id = new_request_id("tok")
        caller, body = await read_request(door, request, TOKENIZE_DECODER, is_accounted=False)
        wanted = read_tokenize_request(body, request_id=request_id, caller=caller)
        check_prompts([wanted.prompt])
        answer = tokenize_answer(await door.house.tokenize(wanted))
        return Response(answer, content_type="application/json")

    @app.post("/v1/detokenize")
    @app.post("/detokenize")
    async def detokenize() -> Response:
        request_id = new_request_id("detok")
        _, body = await read_request(door, request, DETOKENIZE_DECODER, is_accounted=False)
        text = await door.house.detokenize(read_detokenize_request(body, request_id=request_id))
        return Response(detokenize_answer(text), content_type="application/json")
