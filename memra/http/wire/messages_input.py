"""Anthropic's messages, turned into the messages of a chat.

A turn of the user may hold results of tools, which become messages of their own; a turn of the assistant holds its
thoughts and calls beside its text. Refuses to know what the model makes of it. Called by `messages_request`.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from memra.errors import InvalidRequestError
from memra.http.wire.assistant_turn import AssistantTurn

_ROLES = ("user", "assistant", "system")


class TextBlock(msgspec.Struct):
    """A block where only text may stand."""

    type: str = "text"
    text: str | None = None


class Block(msgspec.Struct):
    """One block of a message as sent: all fields of the kinds that are read."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None


class InputMessage(msgspec.Struct):
    """One message as sent."""

    role: str
    content: str | list[Block]


def read_messages(messages: Sequence[InputMessage], *, system: str | list[TextBlock] | None) -> list[dict[str, Any]]:
    """Return the messages, OpenAI-shaped, with the system's words first.

    Where the last turn is the assistant's, the answer goes on with it.

    Raises:
        InvalidRequestError: a message or a block is malformed, or of a kind that is not supported; names it.
    """
    read: list[dict[str, Any]] = []
    if system:
        read.append({"role": "system", "content": _text(system, "system")})
    if not messages:
        raise InvalidRequestError("`messages` must hold at least one message.", param="messages")
    for index, message in enumerate(messages):
        read += _message(message, f"messages[{index}]")
    if messages[-1].role == "assistant":
        read[-1]["prefix"] = True
    return read


def _message(message: InputMessage, place: str) -> list[dict[str, Any]]:
    if message.role not in _ROLES:
        raise InvalidRequestError(f"`{place}.role` must be one of {', '.join(_ROLES)}.", param="messages")
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    if message.role == "assistant":
        return _assistant(message.content, place)
    return _user(message.content, place, role=message.role)


def _assistant(blocks: Sequence[Block], place: str) -> list[dict[str, Any]]:
    turn = AssistantTurn()
    for index, block in enumerate(blocks):
        where = f"{place}.content[{index}]"
        match block.type:
            case "text":
                turn.texts.append(_required(block.text, f"{where}.text"))
            case "thinking":
                turn.thoughts.append(_required(block.thinking, f"{where}.thinking"))
            case "redacted_thinking":
                continue  # only its author can read it
            case "tool_use":
                call_id, name = _required(block.id, f"{where}.id"), _required(block.name, f"{where}.name")
                turn.add_call(call_id, name, block.input)
            case _:
                _refuse_block(where, "text, thinking, redacted_thinking or tool_use")
    return turn.end() or [{"role": "assistant", "content": ""}]


def _user(blocks: Sequence[Block], place: str, *, role: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    texts: list[str] = []
    for index, block in enumerate(blocks):
        where = f"{place}.content[{index}]"
        match block.type:
            case "text":
                texts.append(_required(block.text, f"{where}.text"))
            case "tool_result" if role == "user":
                messages += _joined(role, texts)
                texts = []
                messages.append(_result(block, where))
            case _:
                _refuse_block(where, "text or tool_result")
    messages += _joined(role, texts)
    return messages or [{"role": role, "content": ""}]


def _joined(role: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": "\n".join(texts)}] if texts else []


def _result(block: Block, place: str) -> dict[str, Any]:
    text = _text(block.content or "", f"{place}.content")
    if block.is_error:
        # Chats have no place for it, and a model should know.
        text = f"Error: {text}" if text else "Error"
    return {"role": "tool", "tool_call_id": _required(block.tool_use_id, f"{place}.tool_use_id"), "content": text}


def _text(content: str | Sequence[TextBlock], place: str) -> str:
    if isinstance(content, str):
        return content
    for index, block in enumerate(content):
        if block.type != "text" or block.text is None:
            _refuse_block(f"{place}[{index}]", "text")
    return "\n".join(block.text or "" for block in content)


def _required(value: str | None, place: str) -> str:
    if value is None:
        raise InvalidRequestError(f"`{place}` is required.", param="messages")
    return value


def _refuse_block(place: str, kinds: str) -> NoReturn:
    param = place.partition("[")[0]
    raise InvalidRequestError(f"`{place}` must be of type {kinds}; this server takes no other kind.", param=param)
