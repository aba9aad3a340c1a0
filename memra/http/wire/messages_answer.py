"""Anthropic's message, whole and streamed.

Refuses to know HTTP. Blocks of content are numbered and stand one after the other; every event carries its type as the
event's name and within. See `memra.http.wire.streamed_answer.ItemAnswer`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from memra.http.errors import error_object
from memra.http.wire.answer import Stamp, encode, late_error
from memra.http.wire.answer_items import AnswerItems, Item, ItemKind, Step
from memra.http.wire.messages_error import messages_error
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyStarted, Usage
from memra.types import StopCause

STOP_REASONS: Mapping[StopCause, str | None] = {
    StopCause.END_OF_SEQUENCE: "end_turn",
    StopCause.STOP_STRING: "stop_sequence",
    StopCause.STOP_TOKEN: "end_turn",
    StopCause.MAX_TOKENS: "max_tokens",
    StopCause.CONTEXT_FULL: "model_context_window_exceeded",
    StopCause.DEADLINE: None,
    StopCause.TOOL_CALLS: "tool_use",
}
"""Anthropic's words; it has none for an answer that its deadline cut short, beside which an error stands."""

_DELTAS: Mapping[ItemKind, bytes] = {
    ItemKind.REASONING: b'"thinking_delta","thinking":',
    ItemKind.TEXT: b'"text_delta","text":',
    ItemKind.CALL: b'"input_json_delta","partial_json":',
}
"""By kind: the type of a delta, and the field that holds it."""

_GROWTH = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%s%s}}\n\n'

_UNSIGNED = {"type": "signature_delta", "signature": ""}
"""Thoughts of our models are not signed, but clients look for the event before they send thoughts back."""


class MessagesAnswer:
    """Writes one message.

    Args:
        stamp: of the answer.
        stop_sequences: of the request; where there is just one, it is known which ended the answer.
    """

    def __init__(self, stamp: Stamp, *, stop_sequences: tuple[str, ...]) -> None:
        """Write down what never changes."""
        self._items = AnswerItems()
        self._stops = stop_sequences
        self._has_begun = False
        self._has_pinged = False
        self._common = {"id": stamp.request_id, "type": "message", "role": "assistant", "model": stamp.model}

    def keep(self, delta: ReplyDelta) -> None:
        """Take more of an answer that is shown as a whole."""
        for _ in self._items.take(delta):
            pass

    def whole(self, finished: ReplyFinished) -> bytes:
        """Return the JSON body of the answer that was kept."""
        for _ in self._items.end(finished.stop):
            pass
        content = [_block(item) for item in self._items.items]
        body = {**self._common, "content": content, **self._stop(finished), "usage": _usage(finished.usage)}
        return encode({**body, **_error_beside(finished)})

    def begin(self, started: ReplyStarted) -> bytes:
        """Return the event that opens the stream, with the length of the prompt."""
        return self._begin(Usage(started.num_prompt_tokens, 0, started.num_cached_tokens, 0.0))

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the events for more of the answer; empty when there is nothing to show."""
        return b"".join(self._change(*change) for change in self._items.take(delta))

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return what closes the last block, the reason for the end, and the end."""
        lines = self._begin(finished.usage)
        lines += b"".join(self._change(*change) for change in self._items.end(finished.stop))
        lines += _event("message_delta", delta=self._stop(finished), usage=_usage(finished.usage))
        return lines + _event("message_stop")

    def failure(self, error: bytes) -> bytes:
        """Return the error, which is the end."""
        return _event(**messages_error(msgspec.json.decode(error)["error"]))

    def _begin(self, usage: Usage) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        nothing: Mapping[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        message = {**self._common, **nothing, "usage": _usage(usage)}
        return _event("message_start", message=message)

    def _change(self, step: Step, item: Item, piece: str) -> bytes:
        if step is Step.GREW:
            return _GROWTH % (item.index, _DELTAS[item.kind], encode(piece))
        if step is Step.CLOSED:
            is_thought = item.kind is ItemKind.REASONING
            signature = _event("content_block_delta", index=item.index, delta=_UNSIGNED) if is_thought else b""
            return signature + _event("content_block_stop", index=item.index)
        return _event("content_block_start", index=item.index, content_block=_block(item)) + self._ping()

    def _ping(self) -> bytes:
        if self._has_pinged:
            return b""
        self._has_pinged = True
        return _event("ping")

    def _stop(self, finished: ReplyFinished) -> Mapping[str, Any]:
        reason = STOP_REASONS[finished.stop]
        sequence = finished.stop_string
        if sequence is None and finished.stop is StopCause.STOP_STRING and len(self._stops) == 1:
            sequence = self._stops[0]
        return {"stop_reason": reason, "stop_sequence": sequence}


def _block(item: Item) -> Mapping[str, Any]:
    if item.kind is ItemKind.REASONING:
        return {"type": "thinking", "thinking": item.content, "signature": ""}
    if item.kind is ItemKind.TEXT:
        return {"type": "text", "text": item.content}
    return {"type": "tool_use", "id": item.call_id, "name": item.name, "input": _input(item)}


def _input(item: Item) -> Mapping[str, Any]:
    """Return a call's arguments; those of a call that was cut short are no JSON, and nobody may act on them."""
    try:
        return msgspec.json.decode(item.content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _usage(usage: Usage) -> Mapping[str, Any]:
    """Return Anthropic's usage, which counts what was cached apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _error_beside(finished: ReplyFinished) -> Mapping[str, Any]:
    if finished.stop is not StopCause.DEADLINE:
        return {}
    return {"error": messages_error(error_object(late_error()))["error"]}


def _event(type: str, **fields: Any) -> bytes:  # noqa: A002  (as it is called on the wire)
    return b"event: %s\ndata: %s\n\n" % (type.encode(), encode({"type": type, **fields}))
