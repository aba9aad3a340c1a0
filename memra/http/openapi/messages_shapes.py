"""What `POST /v1/messages` is answered with, whole and event by event, as schemas.

Only described here: `memra.http.wire.messages_answer` writes the bytes, and tests hold what it writes against these
schemas. Read by `memra.http.openapi.operations`.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from memra.http.openapi.error_shapes import MessagesErrorObject

MessageStop = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "model_context_window_exceeded"]


class ThinkingBlock(Struct, tag="thinking"):
    """What the model thought; thoughts are not signed."""

    thinking: str
    signature: str


class AnswerTextBlock(Struct, tag="text"):
    """A block of text."""

    text: str


class ToolUseBlock(Struct, tag="tool_use"):
    """A call of a tool; the input of one that was cut short is empty."""

    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = ThinkingBlock | AnswerTextBlock | ToolUseBlock


class MessagesUsage(Struct):
    """What a message took; what came from the cache is counted apart."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnswerMessage(Struct, kw_only=True):
    """A message; `error` stands beside one that its deadline cut short."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: MessageStop | None
    stop_sequence: str | None
    usage: MessagesUsage
    error: MessagesErrorObject | UnsetType = UNSET


class TokenCount(Struct):
    """How many tokens a prompt has."""

    input_tokens: int


class MessageStartEvent(Struct, tag="message_start"):
    """The message as it begins, with the length of the prompt."""

    message: AnswerMessage


class ContentBlockStartEvent(Struct, tag="content_block_start"):
    """A block that opens."""

    index: int
    content_block: AnswerBlock


class PingEvent(Struct, tag="ping"):
    """Nothing: after the first block opened."""


class TextDelta(Struct, tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(Struct, tag="thinking_delta"):
    """More thoughts."""

    thinking: str


class InputJsonDelta(Struct, tag="input_json_delta"):
    """More of a call's input, as text."""

    partial_json: str


class SignatureDelta(Struct, tag="signature_delta"):
    """The end of thoughts."""

    signature: str


class ContentBlockDeltaEvent(Struct, tag="content_block_delta"):
    """More of the block that is open."""

    index: int
    delta: TextDelta | ThinkingDelta | InputJsonDelta | SignatureDelta


class ContentBlockStopEvent(Struct, tag="content_block_stop"):
    """A block that closes."""

    index: int


class MessageEnd(Struct):
    """Why a message ended."""

    stop_reason: MessageStop | None
    stop_sequence: str | None


class MessageDeltaEvent(Struct, tag="message_delta"):
    """The end of a message, and what it took."""

    delta: MessageEnd
    usage: MessagesUsage


class MessageStopEvent(Struct, tag="message_stop"):
    """The end of the stream."""
