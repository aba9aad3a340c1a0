"""Messages as clients send them, turned into messages as chat templates expect them.

Trade: the few differences between OpenAI's wire and the templates' habits. It refuses to know Jinja and any one model.
Everything a template sees is a fresh copy of plain dicts, lists, text and numbers, so it can change nothing outside.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from memra.errors import InvalidRequestError

_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Where clients send an earlier answer's reasoning; the first is the one most templates read."""

_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
"""Values of exactly these cannot be changed and hide nothing, so they are their own copies."""

_SHORT_ID_CHARS = 9
"""Of the ids that Mistral's templates insist on."""


class EmptyContent(Enum):
    """How an assistant's turn without text is written; most templates take the first, some fail on all but one."""

    ABSENT = "absent"
    EMPTY = ""
    NULL = None


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How one template wants its messages.

    Attributes:
        arguments_as_text: a tool call's arguments are JSON text instead of an object.
        empty_content: for an assistant's turn that has only tool calls.
        has_short_ids: ids of tool calls have exactly nine letters and digits.
        has_one_system: only one system turn is read, the first.
        has_no_late_system: a system turn below the first turn of a user is not read.
    """

    arguments_as_text: bool = False
    empty_content: EmptyContent = EmptyContent.ABSENT
    has_short_ids: bool = False
    has_one_system: bool = False
    has_no_late_system: bool = False


def plain_messages(messages: Sequence[Mapping[str, Any]], *, style: MessageStyle) -> list[dict[str, Any]]:
    """Return the messages for a template.

    Fields that are None are left out, as `transformers` does: a template handles a missing field and would write "None"
    for one that is there; an assistant's turn without text follows the style. Reasoning is given under each name that
    templates know. Text parts are joined by a line break. The arguments of tool calls become objects, or JSON text for
    a template that asks for text; text that is no JSON object stays as it is. Where a template takes nothing but short
    ids of tool calls, every id becomes a digest of itself, so that calls and results still find each other. Where it
    reads one system turn, those that stand above the conversation become one, with an empty line between them; where it
    reads none further below, those go into the user's turn beside them, where their words stand at the place they had.

    Raises:
        InvalidRequestError: a content part is not text.
    """
    plain = [_plain_message(message, style=style) for message in messages]
    if style.has_one_system:
        plain = _with_one_system(plain)
    return _without_late_system(plain) if style.has_no_late_system else plain


def plain_copy(value: Any) -> Any:
    """Return a deep copy that holds only dicts, lists and plain values; subclasses of text and numbers lose theirs."""
    if type(value) in _PLAIN_TYPES:
        return value
    plain: Any
    match value:
        case None | bool():
            plain = value
        case str():
            plain = str.__str__(value)
        case int():
            plain = int.__int__(value)
        case float():
            plain = float.__float__(value)
        case list() | tuple():
            plain = [plain_copy(item) for item in value]
        case dict() | Mapping():
            plain = {plain_copy(key): plain_copy(item) for key, item in value.items()}
        case _:
            plain = f"<{type(value).__name__}>"
    return plain


def _plain_message(message: Mapping[str, Any], *, style: MessageStyle) -> dict[str, Any]:
    plain: dict[str, Any] = {key: plain_copy(value) for key, value in message.items() if value is not None}
    if isinstance(plain.get("content"), list):
        plain["content"] = _joined_parts(plain["content"])
    if plain.get("role") == "assistant" and "content" not in plain and style.empty_content is not EmptyContent.ABSENT:
        plain["content"] = style.empty_content.value
    for call in plain.get("tool_calls", ()):
        function = call.get("function", call) if isinstance(call, dict) else None
        if style.has_short_ids and isinstance(call, dict):
            _shorten(call, "id")
        if isinstance(function, dict):
            function["arguments"] = _arguments(function.get("arguments"), as_text=style.arguments_as_text)
    if style.has_short_ids:
        _shorten(plain, "tool_call_id")
    reasoning = next((plain[field] for field in _REASONING_FIELDS if field in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _with_one_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    num_above = _num_system_above(messages)
    if num_above < 2:  # noqa: PLR2004 - one is as it should be
        return messages
    return [_joined(messages[0], *messages[1:num_above]), *messages[num_above:]]


def _without_late_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    num_above = _num_system_above(messages)
    turns, was_system = messages[:num_above], False
    for message in messages[num_above:]:
        is_system = message.get("role") == "system"
        turn = {**message, "role": "user"} if is_system else message
        if (is_system or was_system) and turn.get("role") == "user" and turns and turns[-1].get("role") == "user":
            turns[-1] = _joined(turns[-1], turn)
        else:
            turns.append(turn)
        was_system = is_system
    return turns


def _num_system_above(messages: Sequence[Mapping[str, Any]]) -> int:
    return next((n for n, message in enumerate(messages) if message.get("role") != "system"), len(messages))


def _joined(first: dict[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """The first turn, with the words of all."""
    texts = [message["content"] for message in (first, *others) if message.get("content")]
    return {**first, "content": "\n\n".join(texts)}


def _shorten(holder: dict[str, Any], field: str) -> None:
    call_id = holder.get(field)
    if isinstance(call_id, str) and not (len(call_id) == _SHORT_ID_CHARS and call_id.isalnum()):
        holder[field] = sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_ID_CHARS]


def _joined_parts(parts: list[Any]) -> str:
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) and part.get("type", "text") == "text" else part
        if not isinstance(text, str):
            raise InvalidRequestError("this model reads text only: send content parts of type 'text'", param="messages")
        texts.append(text)
    return "\n".join(texts)


def _arguments(arguments: Any, *, as_text: bool) -> Any:
    if arguments is None or arguments == "":
        arguments = {}
    if as_text:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments
