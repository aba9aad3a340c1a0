"""`POST /v1/embeddings`."""

from functools import partial

import trio
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, hand_over, limit_headers, new_request_id, read_request
from memra.http.wire.embedding_answer import embedding_answer
from memra.http.wire.embedding_request import DECODER, read_embedding_request

THREAD_ENCODE_BYTES = 1 << 17
"""Larger answers are written in a thread of their own: 3 MB of numbers take 80 ms, and streams must go on."""


def add_embedding_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the embedding route."""

    @app.post("/v1/embeddings")
    async def embeddings() -> Response:
        request_id = new_request_id("embd")
        caller, body = await read_request(door, request, DECODER)
        texts = read_embedding_request(body, request_id=request_id, caller=caller)
        pooled = await door.house.pool_texts(hand_over(texts))
        write = partial(embedding_answer, body, pooled)
        is_large = len(pooled.vectors) > THREAD_ENCODE_BYTES
        answer = await trio.to_thread.run_sync(write) if is_large else write()
        return Response(answer, headers=limit_headers(pooled.admitted), content_type="application/json")
