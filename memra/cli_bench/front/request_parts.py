"""One request taken apart: what each of its stages costs by itself, in a loop that does nothing else.

The stages are the server's own functions, called in their order without a server around them. Refuses to know HTTP and
actors, which `scripted_front` measures with all the rest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from werkzeug.datastructures import Headers

from memra.chat.chat_format import ChatFormat
from memra.cli_bench.front.processor_time import least_us
from memra.http.request_headers import read_caller
from memra.http.wire.answer import Stamp, WholeChoice
from memra.http.wire.chat_answer import ChatAnswer
from memra.http.wire.chat_request import DECODER, read_chat_request
from memra.messages.generation import ChatPrompt, GenerationRequest, ReplyDelta, ReplyFinished, Usage
from memra.messages.prompt import RenderPrompt
from memra.types import ModelName, RequestId, StopCause

REQUEST_GOAL_MS = 3.0
TOKEN_GOAL_US = 10.0
_TOKENS_A_ROUND = 2000
_STAMP = Stamp(RequestId("chatcmpl-bench"), 0, ModelName("bench"), "memra-bench")
_FINISHED = ReplyFinished(StopCause.MAX_TOKENS, Usage(1000, 100, 900, 1.0))


@dataclass(frozen=True, slots=True)
class RequestParts:
    """What a chat request costs, microseconds of processor time.

    Attributes:
        num_prompt_tokens: of the chat.
        validate: from bytes to a checked request.
        render: the template, with the copies that it works on.
        tokenize: text to token ids; no part of the goal, for it follows from the prompt's length.
        frame_whole: the JSON body of a whole answer.
        frame_token: the event of one streamed token, in a loop.
    """

    num_prompt_tokens: int = field(kw_only=True)
    validate: float
    render: float
    tokenize: float
    frame_whole: float
    frame_token: float

    @property
    def request_ms(self) -> float:
        """What the goal is about: validation, rendering and framing."""
        return (self.validate + self.render + self.frame_whole) / 1e3


def measure_parts(chat_format: ChatFormat, body: Mapping[str, Any], *, rounds: int) -> RequestParts:
    """Measure every stage of a chat request; a second or two.

    Args:
        chat_format: the model's own.
        body: of the request.
        rounds: of which the best one counts.
    """
    content = bytearray(json.dumps(body).encode())
    request = _read(content)
    command = RenderPrompt(request.request_id, request.model, request.prompt)
    template = chat_format.tool_template if "tools" in body else chat_format.template
    write = partial(template.render, cast("ChatPrompt", command.prompt))
    encode = partial(chat_format.tokenizer.encode, write(), add_special=False, parse_special=True)
    chunks = ChatAnswer(_STAMP, wants_usage_chunk=False)
    frame_token = partial(chunks.delta, ReplyDelta(" token", (1000,)))
    return RequestParts(
        num_prompt_tokens=len(chat_format.render(command).prompt_ids),
        validate=least_us(lambda: _read(content), rounds=rounds),
        render=least_us(write, rounds=rounds),
        tokenize=least_us(encode, rounds=rounds),
        frame_whole=least_us(_frame_whole, rounds=rounds),
        frame_token=least_us(frame_token, rounds=rounds, repeats=_TOKENS_A_ROUND),
    )


def _read(content: bytearray) -> GenerationRequest:
    body = DECODER.decode(content)
    return read_chat_request(body, request_id=_STAMP.request_id, caller=read_caller(Headers()))


def _frame_whole() -> bytes:
    choice = WholeChoice(ReplyDelta("Fifty words of an answer. " * 10), StopCause.MAX_TOKENS)
    return ChatAnswer(_STAMP, wants_usage_chunk=False).whole([choice], _FINISHED)
