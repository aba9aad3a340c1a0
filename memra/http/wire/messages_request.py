"""The bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`, and the chat completion that they mean.

Refuses to know templates. Tools that Anthropic would run itself are refused by name. A budget of thoughts is not
enforced: a model thinks as long as it thinks, within `max_tokens`. Called by `memra.http.routes.messages`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller, is_label
from memra.http.wire.chat_translation import read_as_chat
from memra.http.wire.messages_input import InputMessage, TextBlock, read_messages
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.messages.generation import GenerationRequest
from memra.types import RequestId

NAMES: Mapping[str, str] = {
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
"""What fields of a chat completion are called here."""

_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "any": "required"}
_THINKS: Mapping[str, bool] = {"enabled": True, "adaptive": True, "disabled": False}


class Thinking(msgspec.Struct):
    """The object `thinking`."""

    type: str
    budget_tokens: int | None = None


class ToolChoice(msgspec.Struct):
    """The object `tool_choice`."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(msgspec.Struct):
    """The object `metadata`."""

    user_id: str | None = None


class OutputConfig(msgspec.Struct):
    """The object `output_config`."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """One tool; those that Anthropic runs itself have a type of their own."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """What is counted; an explicit null means the default."""

    model: str
    messages: list[InputMessage]
    system: str | list[TextBlock] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None  # where `output_config.format` stood at first; agents still write it
    mcp_servers: Any = None
    container: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """The whole body."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    seed: int | None = None
    timeout_ms: int | None = None
    session_id: str | None = None
    cache_salt: str | None = None


DECODER = msgspec.json.Decoder(MessagesRequest)
COUNT_DECODER = msgspec.json.Decoder(CountRequest)


def read_messages_request(body: MessagesRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    user = body.metadata.user_id if body.metadata else None
    same = ("max_tokens", "temperature", "top_p", "top_k", "stream", "seed", "timeout_ms", "session_id", "cache_salt")
    fields = {
        **_prompt_fields(body),
        **{name: getattr(body, name) for name in same},
        "stop": body.stop_sequences,
        # It only names a conversation, and clients fill it with what they like.
        "user": user if user and is_label(user) else None,
    }
    return read_as_chat(fields, names=NAMES, request_id=request_id, caller=caller)


def read_count_request(body: CountRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what is counted: the prompt of the request that it would be.

    Raises:
        InvalidRequestError: as for `read_messages_request`.
    """
    return read_as_chat(_prompt_fields(body), names=NAMES, request_id=request_id, caller=caller)


def _prompt_fields(body: CountRequest) -> Mapping[str, Any]:
    for name in ("mcp_servers", "container"):
        if getattr(body, name):
            refuse_unsupported(name)
    config = body.output_config or OutputConfig()
    choice = body.tool_choice
    return {
        "model": body.model,
        "messages": read_messages(body.messages, system=body.system),
        "tools": _tools(body.tools or ()),
        "tool_choice": _tool_choice(choice),
        "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
        "enable_thinking": _thinks(body.thinking),
        "reasoning_effort": config.effort,
        "response_format": _response_format(body.output_format if config.format is None else config.format),
        "chat_template_kwargs": body.chat_template_kwargs,
    }


def _tools(tools: Sequence[Tool]) -> list[Mapping[str, Any]]:
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _tool(tool: Tool, place: str) -> Mapping[str, Any]:
    if tool.type not in (None, "custom"):
        raise InvalidRequestError(
            f'`{place}.type` must be "custom": this server runs no tools of its own.', param="tools"
        )
    if tool.input_schema is None:
        raise InvalidRequestError(f"`{place}.input_schema` is required.", param="tools")
    if not tool.name:
        raise InvalidRequestError(f"`{place}.name` must be a name.", param="tools")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice | None) -> str | Mapping[str, Any] | None:
    if choice is None:
        return None
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    if choice.type not in _CHOICES:
        refuse("tool_choice.type", "one of auto, any, tool, none")
    return _CHOICES[choice.type]


def _thinks(thinking: Thinking | None) -> bool | None:
    if thinking is None:
        return None
    if thinking.type not in _THINKS:
        refuse("thinking.type", f"one of {', '.join(_THINKS)}")
    return _THINKS[thinking.type]


def _response_format(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if given.get("type") != "json_schema":
        refuse("output_config.format.type", '"json_schema"')
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": given.get("schema")}}
