"""OpenAI's chat completion, whole and streamed.

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


class ChatAnswer:
    """Writes chat completions; the first chunk that shows anything carries the role.

    Args:
        wants_usage_chunk: put the usage in a chunk of its own, and `usage: null` in all others.
    """

    def __init__(self, stamp: Stamp, *, wants_usage_chunk: bool) -> None:
        """Encode what never changes."""
        self._stamp = stamp
        self._wants_usage_chunk = wants_usage_chunk
        self._has_shown_role = False
        self._common = {
            "id": stamp.request_id,
            "object": "chat.completion.chunk",
            "created": stamp.created,
            "model": stamp.model,
            "system_fingerprint": stamp.fingerprint,
        }
        head = b"data: " + encode(self._common)[:-1]
        self._text_head = head + b',"choices":[{"index":0,"delta":{"content":'
        self._role_head = head + b',"choices":[{"index":0,"delta":{"role":"assistant","content":'
        self._tail = b'},"finish_reason":null}]' + (b',"usage":null' if wants_usage_chunk else b"") + b"}\n\n"

    def whole(self, text: str, token_ids: tuple[TokenId, ...], finished: ReplyFinished) -> bytes:
        """Return the JSON body of a complete answer."""
        del token_ids  # OpenAI's shape has no place for them
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": FINISH_REASONS[finished.stop]}
        common = {**self._common, "object": "chat.completion"}
        body = {**common, "choices": [choice], "usage": usage_object(finished.usage), **error_beside(finished)}
        return encode({**body, "memra_cache": finished.cache.value})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the chunk for more text; empty when there is nothing to show."""
        return self._chunk(delta.text) if delta.text else b""

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the finish chunk, the usage and the end; an answer without text still delivers its role."""
        role = b"" if self._has_shown_role else self._chunk("")
        choice: Mapping[str, Any] = {"index": 0, "delta": {}, "finish_reason": FINISH_REASONS[finished.stop]}
        chunk = {**self._common, "choices": [choice]}
        usage = usage_object(finished.usage)
        if not self._wants_usage_chunk:
            return role + data_line({**chunk, "usage": usage}) + DONE
        usage_chunk = {**self._common, "choices": [], "usage": usage}
        return role + data_line({**chunk, "usage": None}) + data_line(usage_chunk) + DONE

    def failure(self, error: bytes) -> bytes:
        """Return the error and the end."""
        return openai_failure(error)

    def _chunk(self, text: str) -> bytes:
        head = self._text_head
        if not self._has_shown_role:
            self._has_shown_role = True
            head = self._role_head
        return head + encode(text) + self._tail
