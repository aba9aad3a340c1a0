"""OpenAI's text completion, whole and streamed.

Refuses to know HTTP. What is the same in every chunk is encoded once per answer. See `memra.http.wire.answer.Answer`.
"""

from collections.abc import Mapping
from typing import Any

from memra.http.wire.answer import (
    DONE,
    FINISH_REASONS,
    Stamp,
    data_line,
    encode,
    error_beside,
    openai_failure,
    usage_object,
)
from memra.messages.generation import ReplyDelta, ReplyFinished
from memra.types import TokenId


class CompletionAnswer:
    """Writes text completions.

    Args:
        wants_usage_chunk: put the usage in a chunk of its own, and `usage: null` in all others.
    """

    def __init__(self, stamp: Stamp, *, wants_usage_chunk: bool) -> None:
        """Encode what never changes."""
        self._wants_usage_chunk = wants_usage_chunk
        self._common = {
            "id": stamp.request_id,
            "object": "text_completion",
            "created": stamp.created,
            "model": stamp.model,
            "system_fingerprint": stamp.fingerprint,
        }
        self._head = b"data: " + encode(self._common)[:-1] + b',"choices":[{"index":0,"text":'
        self._tail = b',"finish_reason":null}]' + (b',"usage":null' if wants_usage_chunk else b"") + b"}\n\n"

    def whole(self, text: str, token_ids: tuple[TokenId, ...], finished: ReplyFinished) -> bytes:
        """Return the JSON body of a complete answer."""
        del token_ids  # OpenAI's shape has no place for them
        usage = usage_object(finished.usage)
        return encode({**self._finished(text, finished), "usage": usage, **error_beside(finished)})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the chunk for more text; empty when there is nothing to show."""
        return self._head + encode(delta.text) + self._tail if delta.text else b""

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the finish chunk with empty text, the usage and the end."""
        chunk = self._finished("", finished)
        usage = usage_object(finished.usage)
        if not self._wants_usage_chunk:
            return data_line({**chunk, "usage": usage}) + DONE
        usage_chunk = {**self._common, "choices": [], "usage": usage}
        return data_line({**chunk, "usage": None}) + data_line(usage_chunk) + DONE

    def failure(self, error: bytes) -> bytes:
        """Return the error and the end."""
        return openai_failure(error)

    def _finished(self, text: str, finished: ReplyFinished) -> Mapping[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": FINISH_REASONS[finished.stop]}
        return {**self._common, "choices": [choice]}
