"""`POST /v1/rerank`, also without the version."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, hand_over, limit_headers, new_request_id, read_request
from memra.http.wire.rerank import DECODER, read_rerank_request, rerank_answer


def add_rerank_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the ranking route."""

    @app.post("/v1/rerank")
    @app.post("/rerank")
    async def rerank() -> Response:
        request_id = new_request_id("rerank")
        caller, body = await read_request(door, request, DECODER)
        texts = read_rerank_request(body, request_id=request_id, caller=caller)
        pooled = await door.house.pool_texts(hand_over(texts))
        answer = rerank_answer(body, pooled, request_id=request_id)
        return Response(answer, headers=limit_headers(pooled.admitted), content_type="application/json")
