"""The public routes as a table: what each takes, what it answers, what it may refuse.

A test compares the table with the routes of the application. Refuses to know how a schema is written down. Read by
`memra.http.openapi.document`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memra import errors
from memra.http.openapi import (
    chat_shapes,
    error_shapes,
    messages_shapes,
    responses_shapes,
    server_shapes,
    text_shapes,
)
from memra.http.wire.cancel_request import CancelBody
from memra.http.wire.chat_request import ChatRequest
from memra.http.wire.completion_request import CompletionRequest
from memra.http.wire.embedding_request import EmbeddingRequest
from memra.http.wire.messages_request import CountRequest, MessagesRequest
from memra.http.wire.rerank import RerankRequest
from memra.http.wire.responses_request import ResponsesRequest
from memra.http.wire.tokens import DetokenizeBody, TokenizeBody

ErrorKind = type[errors.RequestError] | int
"""A leaf of the errors, or the status of what is found before a request has a meaning."""

_ANY_ERRORS: tuple[ErrorKind, ...] = (431, errors.EngineFaultError)
_DOOR_ERRORS: tuple[ErrorKind, ...] = (errors.AuthenticationError, errors.ForbiddenError, errors.PluginFaultError)
_READER_ERRORS: tuple[ErrorKind, ...] = (*_ANY_ERRORS, *_DOOR_ERRORS)
_BODY_ERRORS: tuple[ErrorKind, ...] = (
    *_ANY_ERRORS,
    errors.InvalidRequestError,
    *_DOOR_ERRORS,
    errors.InvalidLaneError,
    408,
    errors.BodyTooLargeError,
    415,
    errors.BodyBusyError,
)
_MODEL_ERRORS: tuple[ErrorKind, ...] = (
    *_BODY_ERRORS,
    errors.UnknownModelError,
    errors.WrongTaskError,
    errors.ContextLengthError,
    errors.ModelLoadError,
    errors.OverloadedError,
    errors.DrainingError,
)
_WORK_ERRORS: tuple[ErrorKind, ...] = (
    *_MODEL_ERRORS,
    errors.RequestTooLongForMemoryError,
    errors.DeadlineExceededError,
    errors.DeniedError,
    errors.InsufficientBalanceError,
    errors.TenantNotEnrolledError,
    errors.KeySpendCapError,
    errors.BudgetUnavailableError,
    errors.LedgerUnavailableError,
    errors.BusyError,
    errors.QueueFullError,
    errors.DeadlineUnreachableError,
    errors.QueueWaitError,
    errors.WorkerFaultError,
)
_GENERATION_ERRORS: tuple[ErrorKind, ...] = (
    *_WORK_ERRORS,
    errors.InfeasibleDeadlineError,
    errors.RequestCancelledError,
    errors.GrammarDeadEndError,
)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One kind of event of a streamed answer.

    Attributes:
        event: its name on the wire, or None for one without.
        data: its schema, or the words that stand there as they are.
    """

    event: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        tag: what it belongs to.
        summary: one line.
        answer: schema of the answer; None where there is none but text, or nothing at all.
        own_answer: schema of the answer in this server's own shape, where a setting may ask for that.
        body: schema of the request, where it has one.
        parameters: of path and query, as OpenAPI writes them.
        stream: the events of a streamed answer, in no order; empty where nothing streams.
        errors: what may be refused.
        has_text: the answer is plain text, or may be.
        unready: schema of the answer with status 503, of the probes.
        refusals: schemas of errors that are more than the error alone, by status.
    """

    method: str
    path: str
    tag: str
    summary: str
    answer: Any
    own_answer: Any = None
    body: type | None = None
    parameters: tuple[Mapping[str, Any], ...] = ()
    stream: tuple[StreamEvent, ...] = ()
    errors: tuple[ErrorKind, ...] = _ANY_ERRORS
    has_text: bool = False
    unready: Any = None
    refusals: Mapping[int, Any] = field(default_factory=dict)


_DONE = StreamEvent(None, "[DONE]")
_FAILURE = StreamEvent(None, error_shapes.ErrorBody)
_RESPONSE_EVENTS: Mapping[Any, tuple[str, ...]] = {
    responses_shapes.ResponseEvent: ("created", "in_progress", "completed", "incomplete", "failed"),
    responses_shapes.OutputItemEvent: ("output_item.added", "output_item.done"),
    responses_shapes.ContentPartEvent: ("content_part.added", "content_part.done"),
    responses_shapes.TextDeltaEvent: ("output_text.delta", "reasoning_text.delta"),
    responses_shapes.TextDoneEvent: ("output_text.done", "reasoning_text.done"),
    responses_shapes.ArgumentsDeltaEvent: ("function_call_arguments.delta",),
    responses_shapes.ArgumentsDoneEvent: ("function_call_arguments.done",),
}
_MESSAGE_EVENTS: Mapping[str, Any] = {
    "message_start": messages_shapes.MessageStartEvent,
    "content_block_start": messages_shapes.ContentBlockStartEvent,
    "ping": messages_shapes.PingEvent,
    "content_block_delta": messages_shapes.ContentBlockDeltaEvent,
    "content_block_stop": messages_shapes.ContentBlockStopEvent,
    "message_delta": messages_shapes.MessageDeltaEvent,
    "message_stop": messages_shapes.MessageStopEvent,
    "error": error_shapes.MessagesErrorEvent,
}

_GENERATION = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Generation",
        "Answer a chat.",
        chat_shapes.ChatCompletion,
        body=ChatRequest,
        stream=(StreamEvent(None, chat_shapes.ChatCompletionChunk), _FAILURE, _DONE),
        errors=_GENERATION_ERRORS,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Generation",
        "Go on with a prompt, in OpenAI's shape or in this server's own: `MEMRA_COMPAT` decides.",
        chat_shapes.Completion,
        own_answer=chat_shapes.NativeCompletion,
        body=CompletionRequest,
        stream=(
            StreamEvent(None, chat_shapes.CompletionChunk),
            _FAILURE,
            _DONE,
            StreamEvent(None, chat_shapes.NativeToken),
            StreamEvent("done", chat_shapes.NativeSummary),
            StreamEvent("error", error_shapes.ErrorBody),
        ),
        errors=_GENERATION_ERRORS,
    ),
    Operation(
        "post",
        "/v1/responses",
        "Generation",
        "Answer a conversation, in the shape of OpenAI's Responses; nothing is kept.",
        responses_shapes.Response,
        body=ResponsesRequest,
        stream=tuple(
            StreamEvent(f"response.{name}", shape) for shape, names in _RESPONSE_EVENTS.items() for name in names
        ),
        errors=_GENERATION_ERRORS,
    ),
    Operation(
        "post",
        "/v1/messages",
        "Generation",
        "Answer a conversation, in the shape of Anthropic's Messages.",
        messages_shapes.AnswerMessage,
        body=MessagesRequest,
        stream=tuple(StreamEvent(name, shape) for name, shape in _MESSAGE_EVENTS.items()),
        errors=_GENERATION_ERRORS,
    ),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "Tokens",
        "Count the tokens of the prompt that a message would have.",
        messages_shapes.TokenCount,
        body=CountRequest,
        errors=_MODEL_ERRORS,
    ),
    Operation(
        "post",
        "/v1/cancel",
        "Generation",
        "End a request that is under way.",
        text_shapes.Cancelled,
        body=CancelBody,
        errors=(*_BODY_ERRORS, errors.UnknownRequestError),
        refusals={404: error_shapes.CancelRefusal},
    ),
)


def _texts(path: str, tag: str, summary: str, body: type, answer: Any) -> tuple[Operation, Operation]:
    """Return a route with the version and without."""
    kinds = _WORK_ERRORS if tag == "Texts" else _MODEL_ERRORS
    known = Operation("post", f"/v1{path}", tag, summary, answer, body=body, errors=kinds)
    return known, Operation("post", path, tag, f"The same as /v1{path}.", answer, body=body, errors=kinds)


_TEXTS = (
    Operation(
        "post",
        "/v1/embeddings",
        "Texts",
        "Make a vector of each text.",
        text_shapes.EmbeddingList,
        body=EmbeddingRequest,
        errors=_WORK_ERRORS,
    ),
    *_texts("/rerank", "Texts", "Rank documents by how well they answer.", RerankRequest, text_shapes.RankingList),
    *_texts("/tokenize", "Tokens", "Turn a text or a chat into token ids.", TokenizeBody, text_shapes.Tokens),
    *_texts("/detokenize", "Tokens", "Turn token ids into text.", DetokenizeBody, text_shapes.Detokenized),
)

_SCHEMA_PARAMETER: Mapping[str, Any] = {
    "name": "schema",
    "in": "query",
    "description": "The shape of the listing: `openai`, or a feed of a plugin, such as `openrouter` and `openmodels`.",
    "schema": {"type": "string", "default": "openai"},
}
_MODEL_PARAMETER: Mapping[str, Any] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The model's name; slashes may stand as they are, or percent-encoded.",
    "schema": {"type": "string"},
}

_SERVER = (
    Operation(
        "get",
        "/models",
        "Server",
        "List the models' names.",
        server_shapes.ModelNameList,
        parameters=(_SCHEMA_PARAMETER,),
        errors=(*_ANY_ERRORS, errors.InvalidRequestError),
    ),
    Operation("get", "/v1/models", "Server", "List the models.", server_shapes.ModelList),
    Operation(
        "get",
        "/v1/models/{id}",
        "Server",
        "Show one model.",
        server_shapes.Model,
        parameters=(_MODEL_PARAMETER,),
        errors=(*_ANY_ERRORS, errors.UnlistedModelError),
    ),
    Operation(
        "get",
        "/livez",
        "Server",
        "Must the process be restarted?",
        server_shapes.Health,
        unready=server_shapes.Health,
    ),
    Operation("get", "/health", "Server", "The same as /livez.", server_shapes.Health, unready=server_shapes.Health),
    Operation("get", "/readyz", "Server", "May work be sent here?", server_shapes.Health, unready=server_shapes.Health),
    Operation(
        "get",
        "/v1/auth/check",
        "Server",
        "Is the key good? Answers nothing where it is.",
        None,
        errors=_READER_ERRORS,
    ),
    Operation(
        "get",
        "/metrics",
        "Server",
        "Show counters and gauges of all: as JSON, or to whoever asks for text as Prometheus reads them.",
        server_shapes.Counters,
        errors=_READER_ERRORS,
        has_text=True,
    ),
    Operation(
        "get", "/yield/metrics", "Server", "Show counters by lane.", server_shapes.Counters, errors=_READER_ERRORS
    ),
    Operation("get", "/cache/stats", "Server", "Show what caches did.", server_shapes.Counters, errors=_READER_ERRORS),
    Operation("get", "/openapi.json", "Server", "Show this document.", dict[str, Any]),
    Operation("get", "/", "Server", "Say where to begin.", None, has_text=True),
)

OPERATIONS: tuple[Operation, ...] = (*_GENERATION, *_TEXTS, *_SERVER)
"""All public routes; those that plugins add are theirs to describe."""
