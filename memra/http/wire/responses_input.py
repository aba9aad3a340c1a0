"""The `input` of a response, turned into the messages of a chat.

What one turn of the assistant was split into (thoughts, text, calls) becomes one message again. Refuses to know what
the model makes of it. Called by `memra.http.wire.responses_request`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.wire.assistant_turn import AssistantTurn
from memra.http.wire.nesting import check_text_depth
from memra.http.wire.responses_tools import GroupedName

_ROLES = ("user", "assistant", "system", "developer")
_ABOVE = ("system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class InputPart(msgspec.Struct):
    """One part of an item's content."""

    type: str = "input_text"
    text: str | None = None
    refusal: str | None = None


class InputItem(msgspec.Struct):
    """One item as sent: all fields of the kinds that are read."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: list[InputPart] | None = None


def read_input(given: str | list[InputItem], *, instructions: str | None) -> list[dict[str, Any]]:
    """Return the messages, OpenAI-shaped.

    Instructions and what stands above the first turn become one system message, since most templates take only one.

    Raises:
        InvalidRequestError: an item is malformed, or of a kind that is not supported; names it.
    """
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else _messages(given)
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    num_above = next((n for n, message in enumerate(messages) if message["role"] not in _ABOVE), len(messages))
    if num_above > 1:
        above = "\n\n".join(message["content"] for message in messages[:num_above])
        messages[:num_above] = [{"role": "system", "content": above}]
    return messages


def _messages(items: Sequence[InputItem]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    turn = AssistantTurn()
    for index, item in enumerate(items):
        message = _read(item, turn, f"input[{index}]")
        if message is not None:
            messages += turn.end()
            messages.append(message)
    return messages + turn.end()


def _read(item: InputItem, turn: AssistantTurn, place: str) -> dict[str, Any] | None:
    """Return the message that an item is, or None where it is part of the assistant's turn."""
    match item.type:
        case None | "message" if item.role in _ROLES:
            text = _text(item.content, f"{place}.content")
            if item.role != "assistant":
                return {"role": item.role, "content": text}
            turn.texts.append(text)
        case None | "message":
            raise InvalidRequestError(f"`{place}.role` must be one of {', '.join(_ROLES)}.", param="input")
        case "reasoning":
            # What only its author can decrypt is left out.
            thoughts = item.content or item.summary
            turn.thoughts += [_text(thoughts, f"{place}.content")] if thoughts else []
        case "function_call":
            call_id, name = _required(item.call_id, f"{place}.call_id"), _required(item.name, f"{place}.name")
            check_text_depth(item.arguments or "", param="input")
            shown = GroupedName(item.namespace, name).joined if item.namespace else name
            turn.add_call(call_id, shown, item.arguments)
        case "function_call_output":
            call_id = _required(item.call_id, f"{place}.call_id")
            return {"role": "tool", "tool_call_id": call_id, "content": _text(item.output, f"{place}.output")}
        case "item_reference":
            raise InvalidRequestError(
                f"`{place}` refers to an item, and nothing is kept between requests; send the item itself.",
                param="input",
            )
        case _:
            raise InvalidRequestError(
                f"`{place}.type` must be message, reasoning, function_call or function_call_output; this server takes "
                "no other kind.",
                param="input",
            )
    return None


def _required(value: str | None, place: str) -> str:
    if not value:
        raise InvalidRequestError(f"`{place}` is required.", param="input")
    return value


def _text(content: str | Sequence[InputPart] | None, place: str) -> str:
    if content is None:
        raise InvalidRequestError(f"`{place}` is required.", param="input")
    if isinstance(content, str):
        return content
    return "\n".join(_part(part, f"{place}[{index}]") for index, part in enumerate(content))


def _part(part: InputPart, place: str) -> str:
    text = part.refusal if part.type == "refusal" else part.text
    if text is None or part.type not in (*_TEXT_PARTS, "refusal"):
        raise InvalidRequestError(f"`{place}` must be a text part; this server takes no other kind.", param="input")
    return text
