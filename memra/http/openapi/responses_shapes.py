"""What `POST /v1/responses` is answered with, whole and event by event, as schemas.

Only described here: `memra.http.wire.responses_answer` writes the bytes, and tests hold what it writes against these
schemas. Read by `memra.http.openapi.operations`.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Names = dict[str, Any]


class OutputText(Struct, tag="output_text"):
    """A part of a message."""

    text: str
    annotations: list[Any]
    logprobs: list[Any]


class ReasoningText(Struct, tag="reasoning_text"):
    """What the model thought."""

    text: str


class ReasoningItem(Struct, tag="reasoning"):
    """An item of thoughts; they are shown as they are, so there is no summary and nothing encrypted."""

    id: str
    status: ItemStatus
    summary: list[Any]
    content: list[ReasoningText]
    encrypted_content: None


class MessageItem(Struct, tag="message"):
    """An item of text."""

    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class FunctionCallItem(Struct, tag="function_call"):
    """A call of a tool; `arguments` is the text of a JSON object."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputItem = ReasoningItem | MessageItem | FunctionCallItem
ContentPart = OutputText | ReasoningText


class InputTokensDetails(Struct):
    """What is known of the prompt's tokens."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Struct):
    """What is known of the answer's tokens."""

    reasoning_tokens: int


class ResponseUsage(Struct):
    """What a response took."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(Struct):
    """Why a response failed."""

    code: Literal["invalid_prompt", "rate_limit_exceeded", "server_error"]
    message: str


class IncompleteDetails(Struct):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"]


class EchoedReasoning(Struct):
    """What was asked about thinking."""

    effort: str | None
    summary: None


class EchoedText(Struct):
    """What was asked about the shape of the text."""

    format: Names


class Response(Struct, kw_only=True):
    """A response: its output, and what was asked."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    output: list[OutputItem]
    usage: ResponseUsage | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: Names
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: EchoedReasoning
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: EchoedText
    tool_choice: str | Names
    tools: list[Names]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None


class ResponseEvent(Struct, kw_only=True):
    """A response as it stands: when it begins, and when it ends."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: Response


class OutputItemEvent(Struct, kw_only=True):
    """An item that opens or closes."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class ContentPartEvent(Struct, kw_only=True):
    """The part of an item that opens or closes."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: ContentPart


class TextDeltaEvent(Struct, kw_only=True):
    """More text, or more thoughts; text has a place for log probabilities."""

    type: Literal["response.output_text.delta", "response.reasoning_text.delta"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Any] | UnsetType = UNSET


class TextDoneEvent(Struct, kw_only=True):
    """All the text, or all the thoughts, of an item."""

    type: Literal["response.output_text.done", "response.reasoning_text.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Any] | UnsetType = UNSET


class ArgumentsDeltaEvent(Struct, kw_only=True):
    """More of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"]
    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class ArgumentsDoneEvent(Struct, kw_only=True):
    """All of a call's arguments."""

    type: Literal["response.function_call_arguments.done"]
    sequence_number: int
    item_id: str
    output_index: int
    arguments: str
