"""`POST /v1/responses`."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor, new_request_id, read_request, stamp
from memra.http.item_reply import respond_in_items
from memra.http.wire.responses_answer import ResponsesAnswer
from memra.http.wire.responses_object import echo_of
from memra.http.wire.responses_request import DECODER, read_responses_request
from memra.http.wire.responses_tools import grouped_names


def add_responses_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the route; responses are not kept, so there is none to get one again."""

    @app.post("/v1/responses")
    async def responses() -> Response:
        request_id = new_request_id("resp", separator="_")
        caller, body = await read_request(door, request, DECODER)
        generation = read_responses_request(body, request_id=request_id, caller=caller)
        answer = ResponsesAnswer(stamp(door, generation), echo_of(body), grouped_names(body.tools or ()))
        return await respond_in_items(door, generation, answer, is_stream=bool(body.stream))
