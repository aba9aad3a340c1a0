"""The body of `POST /v1/chat/completions`, and what it means.

Refuses to know templates: messages keep their OpenAI shape, with text content joined. Called by
`memra.http.routes.chat`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.continuation import read_continuation
from memra.http.wire.declared_function import check_function
from memra.http.wire.ending_fields import read_ends
from memra.http.wire.foreign_fields import refuse_foreign
from memra.http.wire.generation_fields import GenerationFields, read_generation
from memra.http.wire.grammar_fields import read_grammar
from memra.http.wire.likelihood_fields import read_chat_logprobs
from memra.http.wire.nesting import check_text_depth
from memra.http.wire.refusal import refuse
from memra.http.wire.sampling_fields import read_count
from memra.http.wire.thinking_fields import read_thinking
from memra.http.wire.tool_choice import is_named, read_tool_choice
from memra.messages.generation import ChatPrompt, GenerationRequest
from memra.types import RequestId

_ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_RESERVED_OPTIONS = frozenset({"messages", "tools", "add_generation_prompt"})


class ContentPart(msgspec.Struct):
    """One part of a message's content; a part without a type is text."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct):
    """The function of a tool call; arguments are a JSON object, as text or as it is."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct):
    """One call that the assistant made earlier."""

    function: FunctionCall
    id: str | None = None


class Message(msgspec.Struct):
    """One message as sent; an earlier answer's reasoning comes under either name."""

    role: str
    content: str | list[ContentPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    prefix: bool | None = None


class ChatRequest(GenerationFields, kw_only=True):
    """The whole body."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


DECODER = msgspec.json.Decoder(ChatRequest)


def read_chat_request(body: ChatRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    refuse_foreign(body)
    if body.add_special_tokens:
        refuse("add_special_tokens", "false: the model's chat template writes them")
    num_top_logprobs = read_chat_logprobs(body.logprobs, body.top_logprobs)
    _check_tools(body.tools or ())
    must_call, grammar = read_tool_choice(body.tool_choice, body.tools or ()), read_grammar(body)
    bound_by = "tool_choice" if must_call else None if grammar is None else grammar.param
    prompt = _prompt(body, must_call=must_call, bound_by=bound_by)
    max_tokens = read_count("max_tokens", body.max_tokens)
    max_completion_tokens = read_count("max_completion_tokens", body.max_completion_tokens)
    max_new_tokens = max_tokens if max_completion_tokens is None else max_completion_tokens
    request = read_generation(
        body, request_id=request_id, caller=caller, prompt=prompt, num_top_logprobs=num_top_logprobs
    )
    return replace(
        request,
        max_new_tokens=max_new_tokens,
        may_reuse_answer=not body.stream and num_top_logprobs is None,  # what is kept of an answer is its text
        wants_echo=bool(body.echo) and prompt.goes_on,
        grammar=grammar,
        ends=read_ends(body, max_tokens=max_new_tokens, bound_by=bound_by),
    )


def _prompt(body: ChatRequest, *, must_call: tuple[str, ...], bound_by: str | None) -> ChatPrompt:
    messages = _messages(body.messages)
    goes_on = read_continuation(
        body.messages, is_asked=body.continue_final_message, adds_prompt=body.add_generation_prompt, bound_by=bound_by
    )
    return ChatPrompt(
        messages,
        (body.tools or None) if body.tool_choice != "none" else None,
        _template_options(body),
        add_generation_prompt=body.add_generation_prompt is not False,
        is_single_call=body.parallel_tool_calls is False or is_named(body.tool_choice),
        must_call=must_call,
        goes_on=goes_on,
    )


def _messages(messages: Sequence[Message]) -> tuple[Mapping[str, Any], ...]:
    if not messages:
        raise InvalidRequestError("`messages` must hold at least one message.", param="messages")
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: Message, place: str) -> Mapping[str, Any]:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequestError(f"`{place}.role` must be one of {', '.join(_ROLES)}.", param="messages")
    if message.tool_calls and role != "assistant":
        raise InvalidRequestError(
            f"`{place}.tool_calls` is only allowed on the assistant's messages.", param="messages"
        )
    if message.function_call is not None:
        raise InvalidRequestError(
            f"`{place}.function_call` is not supported by this server; send the call in `tool_calls`.", param="messages"
        )
    meaning: dict[str, Any] = {"role": role, "content": _content(message.content, place)}
    if message.name is not None:
        meaning["name"] = message.name
    if message.tool_calls:
        meaning["tool_calls"] = [
            _tool_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        meaning["tool_call_id"] = message.tool_call_id
    reasoning = message.reasoning if message.reasoning_content is None else message.reasoning_content
    if reasoning is not None and role == "assistant":
        meaning["reasoning_content"] = reasoning
    return meaning


def _content(content: str | list[ContentPart] | None, place: str) -> str | None:
    if not isinstance(content, list):
        return content
    # Text parts are lines to llama-server and vLLM as well; OpenAI does not say.
    return "\n".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))


def _part(part: ContentPart, place: str) -> str:
    text = {"text": part.text, "refusal": part.refusal}.get(part.type)
    if text is None:
        raise InvalidRequestError(f"`{place}` must be a text part; this server takes no other kind.", param="messages")
    return text


def _tool_call(call: ToolCall, place: str) -> Mapping[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function.arguments, place)}
    meaning: dict[str, Any] = {"type": "function", "function": function}
    return meaning if call.id is None else {"id": call.id, **meaning}


def _arguments(arguments: str | dict[str, Any] | None, place: str) -> str:
    """Return the arguments as the text of a JSON object, as sent where they were sent as text."""
    if not arguments:
        return "{}"
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    check_text_depth(arguments, param="messages")
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        raise InvalidRequestError(
            f"`{place}.function.arguments` must be a JSON object, or the text of one.", param="messages"
        ) from None
    return arguments


def _check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    for index, tool in enumerate(tools):
        check_function(tool.get("function"), f"tools[{index}].function")


def _template_options(body: ChatRequest) -> Mapping[str, Any]:
    options = body.chat_template_kwargs or {}
    for name in sorted(_RESERVED_OPTIONS.intersection(options)):
        raise InvalidRequestError(
            f"`chat_template_kwargs.{name}` cannot be set there; it follows from the request.",
            param="chat_template_kwargs",
        )
    return read_thinking(body, options)
