"""How a request is answered in a shape that numbers the items of an answer: the same writer streams and collects.

Refuses to know the shapes. Called by the routes of responses and messages.
"""

from functools import partial

from quart.wrappers import Response

from memra.actors.contract import Reply
from memra.errors import OverloadedError
from memra.http.generation import FrontDoor, respond_stream, respond_whole
from memra.http.wire.streamed_answer import ItemAnswer
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished


async def respond_in_items(
    door: FrontDoor, request: GenerationRequest, answer: ItemAnswer, *, is_stream: bool
) -> Response:
    """Open a reply and return the response.

    Raises:
        RequestError: the request was refused, or a collected answer could not go on.
    """
    if is_stream:
        return await respond_stream(door, request, answer, begin=answer.begin)
    return await respond_whole(door, request, partial(_collect, answer=answer))


async def _collect(reply: Reply, answer: ItemAnswer) -> bytes:
    finished: ReplyFinished | None = None
    async for part in reply:
        if isinstance(part, ReplyDelta):
            answer.keep(part)
        elif isinstance(part, ReplyFinished):
            finished = part
    if finished is None:
        raise OverloadedError("The answer ended before it was complete; send the request again.")
    return answer.whole(finished)
