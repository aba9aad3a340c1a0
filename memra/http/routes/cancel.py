"""`POST /v1/cancel`: ends a request of the same key that is under way.

It is named by the `id` of its answer or, since an answer that is not streamed tells its id too late, by what the client
sent with it as `x-request-id`; all requests of that name end.

A stream ends with an error event behind what it had sent, an answer that is collected with that error alone. Asked
twice, or for a request that has ended, it says 404, with `cancelled` false beside the error.
"""

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.errors import InvalidRequestError, UnknownRequestError
from memra.http.errors import error_object, reply_to
from memra.http.generation import FrontDoor, read_request
from memra.http.wire.cancel_request import DECODER


def add_cancel_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the route that ends requests."""

    @app.post("/v1/cancel")
    async def cancel() -> Response:
        caller, body = await read_request(door, request, DECODER, is_accounted=False)
        given = body.id or body.request_id
        if not given:
            raise InvalidRequestError(
                "`id` must name a request: the `id` of its answer, or the x-request-id that was sent with it.",
                param="id",
            )
        answer = {"id": given, "cancelled": True}
        try:
            await door.house.cancel(given, caller.identity)
        except UnknownRequestError as error:
            reply = reply_to(error)
            missing = {**answer, "cancelled": False, "error": error_object(error)}
            return Response(
                msgspec.json.encode(missing),
                status=reply.status,
                headers=dict(reply.headers),
                content_type="application/json",
            )
        return Response(msgspec.json.encode(answer), content_type="application/json")
