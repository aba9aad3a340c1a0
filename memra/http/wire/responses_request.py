"""The body of `POST /v1/responses`, and the chat completion that it means.

The server keeps nothing between requests: fields that ask for what was kept, or to keep it, are refused by name, as are
tools that OpenAI would run itself. Refuses to know templates. Called by `memra.http.routes.responses`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.chat_translation import read_as_chat
from memra.http.wire.declared_function import check_function
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.http.wire.responses_input import InputItem, read_input
from memra.messages.generation import GenerationRequest
from memra.types import RequestId

NAMES: Mapping[str, str] = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "session_id": "prompt_cache_key",
}
"""What fields of a chat completion are called here."""

_KEPT_NOWHERE = "nothing is kept between requests, so send the whole conversation in `input`"
_UNSUPPORTED: Mapping[str, str] = {
    "previous_response_id": _KEPT_NOWHERE,
    "conversation": _KEPT_NOWHERE,
    "prompt": "send the prompt's text as `instructions` and `input`",
    "context_management": "leave it out",
    "moderation": "leave it out",
}
_TRUNCATIONS = (None, "disabled")
_SAME = (
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stream",
    "timeout_ms",
    "user",
    "cache_salt",
    "chat_template_kwargs",
)
"""Fields that a chat completion has under the same name."""


class TextSettings(msgspec.Struct):
    """The object `text`; its `verbosity` is a hint that changes nothing here."""

    format: dict[str, Any] | None = None


class ReasoningSettings(msgspec.Struct):
    """The object `reasoning`; thoughts are shown as they are, so `summary` changes nothing."""

    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The whole body; an explicit null means the default."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    text: TextSettings | None = None
    reasoning: ReasoningSettings | None = None
    stream: bool | None = None
    include: list[str] | None = None
    truncation: str | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    top_k: int | None = None
    seed: int | None = None
    timeout_ms: int | None = None
    cache_salt: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


DECODER = msgspec.json.Decoder(ResponsesRequest)


def read_responses_request(body: ResponsesRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    _check_unsupported(body)
    fields = {
        "model": body.model,
        "messages": read_input(body.input, instructions=body.instructions),
        "tools": _tools(body.tools or ()),
        "tool_choice": _tool_choice(body.tool_choice),
        "response_format": _response_format(body.text),
        "max_completion_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        # Clients name one key for all requests of a conversation.
        "session_id": body.prompt_cache_key,
    }
    fields |= {name: getattr(body, name) for name in _SAME}
    return read_as_chat(fields, names=NAMES, request_id=request_id, caller=caller)


def _check_unsupported(body: ResponsesRequest) -> None:
    for name, remedy in _UNSUPPORTED.items():
        if getattr(body, name) is not None:
            refuse_unsupported(name, remedy)
    if body.store:
        refuse("store", "false: nothing is kept between requests")
    if body.background:
        refuse("background", "false: an answer is only given to the request that asks for it")
    if body.truncation not in _TRUNCATIONS:
        refuse("truncation", '"disabled": this server leaves nothing of a conversation out')
    if body.top_logprobs:
        refuse_unsupported("top_logprobs")
    if "message.output_text.logprobs" in (body.include or ()):
        refuse("include", "without message.output_text.logprobs, which this server does not give here")


def _tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _tool(tool: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    if tool.get("type") != "function":
        raise InvalidRequestError(
            f'`{place}.type` must be "function": this server runs no tools of its own.', param="tools"
        )
    check_function(tool, place)
    wanted = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in wanted if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    if choice is None or isinstance(choice, str):
        return choice
    if choice.get("type") != "function":
        refuse("tool_choice", '"auto", "none", "required", or a function by its name')
    return {"type": "function", "function": {"name": choice.get("name")}}


def _response_format(text: TextSettings | None) -> Mapping[str, Any] | None:
    if text is None or text.format is None:
        return None
    if text.format.get("type") != "json_schema":
        return text.format
    return {"type": "json_schema", "json_schema": {name: text.format[name] for name in text.format if name != "type"}}
