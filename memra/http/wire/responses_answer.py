"""OpenAI's response, whole and streamed.

Refuses to know HTTP. Every event carries its type as the event's name and within, and the next number of the stream;
there is no `[DONE]`. What the model thought stands there as it is, as the content of a reasoning item and not as its
summary. What is the same in every delta of an item is encoded once. See `memra.http.wire.streamed_answer.ItemAnswer`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from memra.http.errors import error_object
from memra.http.wire.answer import Stamp, encode, late_error
from memra.http.wire.answer_items import AnswerItems, Item, ItemKind, Step
from memra.http.wire.responses_object import INCOMPLETE_CAUSES, failure_object, item_object, part_object, response_usage
from memra.http.wire.responses_tools import GroupedName
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyStarted
from memra.types import StopCause

_GREW_BY: Mapping[ItemKind, str] = {
    ItemKind.REASONING: "response.reasoning_text",
    ItemKind.TEXT: "response.output_text",
    ItemKind.CALL: "response.function_call_arguments",
}
"""By kind: what the events are called that tell of its content, without `.delta` and `.done`."""


class ResponsesAnswer:
    """Writes one response.

    Args:
        stamp: of the answer.
        echo: what the response repeats of its request.
        grouped: functions that stand in groups, by the name that the model calls them by.
    """

    def __init__(self, stamp: Stamp, echo: Mapping[str, Any], grouped: Mapping[str, GroupedName]) -> None:
        """Write down what never changes."""
        self._grouped = grouped
        self._items = AnswerItems()
        self._suffix = stamp.request_id.partition("_")[2]
        self._number = 0
        self._has_begun = False
        self._growth_head = b""
        self._common = {
            "id": stamp.request_id,
            "object": "response",
            "created_at": stamp.created,
            "model": stamp.model,
            **echo,
        }

    def keep(self, delta: ReplyDelta) -> None:
        """Take more of an answer that is shown as a whole."""
        for _ in self._items.take(delta):
            pass

    def whole(self, finished: ReplyFinished) -> bytes:
        """Return the JSON body of the answer that was kept."""
        for _ in self._items.end(finished.stop):
            pass
        return encode(self._end(finished))

    def begin(self, started: ReplyStarted) -> bytes:
        """Return the two events that open the stream."""
        del started
        return self._begin()

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the events for more of the answer; empty when there is nothing to show."""
        return self._begin() + b"".join(self._change(*change) for change in self._items.take(delta))

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return what closes the last item, and the whole response once more."""
        lines = self._begin()
        lines += b"".join(self._change(*change) for change in self._items.end(finished.stop))
        response = self._end(finished)
        return lines + self._event(f"response.{response['status']}", response=response)

    def failure(self, error: bytes) -> bytes:
        """Return the response as far as it came, with the error in it."""
        response = self._response("failed", error=failure_object(msgspec.json.decode(error)["error"]))
        return self._begin() + self._event("response.failed", response=response)

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        response = self._response("in_progress")
        events = ("response.created", "response.in_progress")
        return b"".join(self._event(kind, response=response) for kind in events)

    def _end(self, finished: ReplyFinished) -> Mapping[str, Any]:
        usage = response_usage(finished.usage)
        if finished.stop is StopCause.DEADLINE:
            return self._response("failed", usage=usage, error=failure_object(error_object(late_error())))
        if finished.stop in INCOMPLETE_CAUSES:
            return self._response("incomplete", usage=usage, incomplete_details={"reason": "max_output_tokens"})
        return self._response("completed", usage=usage)

    def _response(self, status: str, **more: Any) -> Mapping[str, Any]:
        output = [self._item(item) for item in self._items.items]
        nothing = {"error": None, "incomplete_details": None, "usage": None}
        return {**self._common, **nothing, "status": status, "output": output, **more}

    def _change(self, step: Step, item: Item, piece: str) -> bytes:
        if step is Step.GREW:
            self._number += 1
            return self._growth_head + b'%d,"delta":%s}\n\n' % (self._number - 1, encode(piece))
        return self._opened(item) if step is Step.OPENED else self._closed(item)

    def _growth(self, item: Item) -> bytes:
        """Return what is the same in all events that tell of an item's growth."""
        kind = f"{_GREW_BY[item.kind]}.delta"
        fields = encode({"type": kind, **self._place(item), **_no_logprobs(item)})
        return b'event: %s\ndata: %s,"sequence_number":' % (kind.encode(), fields[:-1])

    def _opened(self, item: Item) -> bytes:
        self._growth_head = self._growth(item)
        shown = {**self._item(item), "status": "in_progress"}
        if item.kind is not ItemKind.CALL:
            shown["content"] = []
        added = self._event("response.output_item.added", output_index=item.index, item=shown)
        if item.kind is ItemKind.CALL:
            return added
        return added + self._event("response.content_part.added", **self._place(item), part=part_object(item))

    def _closed(self, item: Item) -> bytes:
        place = self._place(item)
        content = {"arguments" if item.kind is ItemKind.CALL else "text": item.content}
        done = self._event(f"{_GREW_BY[item.kind]}.done", **place, **_no_logprobs(item), **content)
        if item.kind is not ItemKind.CALL:
            done += self._event("response.content_part.done", **place, part=part_object(item))
        return done + self._event("response.output_item.done", output_index=item.index, item=self._item(item))

    def _item(self, item: Item) -> dict[str, Any]:
        shown = item_object(item, item_id=self._item_id(item))
        grouped = self._grouped.get(item.name) if item.kind is ItemKind.CALL else None
        return shown if grouped is None else {**shown, "namespace": grouped.namespace, "name": grouped.name}

    def _item_id(self, item: Item) -> str:
        prefix = {ItemKind.REASONING: "rs", ItemKind.TEXT: "msg", ItemKind.CALL: "fc"}[item.kind]
        return f"{prefix}_{self._suffix}{item.index}"

    def _place(self, item: Item) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._item_id(item), "output_index": item.index}
        return place if item.kind is ItemKind.CALL else {**place, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


def _no_logprobs(item: Item) -> Mapping[str, Any]:
    """Text has a place for logprobs, which must be there."""
    return {"logprobs": []} if item.kind is ItemKind.TEXT else {}
