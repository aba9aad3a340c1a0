"""OpenAI's chat completion, whole and streamed.

Refuses to know HTTP. What is the same in every chunk is encoded once per answer. See `memra.http.wire.answer.Answer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.http.wire.answer import (
    DONE,
    FINISH_REASONS,
    Stamp,
    WholeChoice,
    data_line,
    encode,
    error_beside,
    openai_failure,
    usage_object,
)
from memra.http.wire.token_likelihoods import chat_logprobs
from memra.messages.generation import ReplyDelta, ReplyFinished
from memra.types import StopCause


class ChatAnswer:
    """Writes chat completions; the first chunk of a choice that shows anything carries the role.

    Args:
        wants_usage_chunk: put the usage in a chunk of its own, and `usage: null` in all others.
        wants_logprobs: every choice has `logprobs`, also where it is empty.
    """

    def __init__(self, stamp: Stamp, *, wants_usage_chunk: bool, wants_logprobs: bool = False) -> None:
        """Encode what never changes."""
        self._wants_usage_chunk = wants_usage_chunk
        self._wants_logprobs = wants_logprobs
        self._began: set[int] = set()
        self._common = {
            "id": stamp.request_id,
            "object": "chat.completion.chunk",
            "created": stamp.created,
            "model": stamp.model,
            "system_fingerprint": stamp.fingerprint,
        }
        self._head = b"data: " + encode(self._common)[:-1] + b',"choices":[{"index":'
        self._usage_tail = (b',"usage":null' if wants_usage_chunk else b"") + b"}\n\n"
        self._tail = b',"finish_reason":null}]' + self._usage_tail

    def whole(self, choices: Sequence[WholeChoice], finished: ReplyFinished) -> bytes:
        """Return the JSON body of complete answers."""
        common = {**self._common, "object": "chat.completion"}
        shapes = [self._whole(choice) for choice in choices]
        body = {**common, "choices": shapes, "usage": usage_object(finished.usage), **error_beside(finished)}
        return encode({**body, "memra_cache": finished.cache.value})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the chunk for more text, and that for the end of its choice; empty when there is nothing."""
        chunk = self._chunk(delta) if delta.text or delta.logprobs else b""
        if delta.stop is None:
            return chunk
        return chunk + self._end(delta.choice, delta.stop) + self._usage_tail

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the finish chunk, the usage and the end; an answer without text still delivers its role."""
        end, usage = self._end(finished.choice, finished.stop), usage_object(finished.usage)
        if not self._wants_usage_chunk:
            return end + b',"usage":' + encode(usage) + b"}\n\n" + DONE
        return end + self._usage_tail + data_line({**self._common, "choices": [], "usage": usage}) + DONE

    def failure(self, error: bytes) -> bytes:
        """Return the error and the end."""
        return openai_failure(error)

    def _whole(self, choice: WholeChoice) -> Mapping[str, Any]:
        answer = choice.answer
        shape: dict[str, Any] = {"index": answer.choice, "message": {"role": "assistant", "content": answer.text}}
        if self._wants_logprobs:
            shape["logprobs"] = chat_logprobs(answer.logprobs)
        return {**shape, "finish_reason": FINISH_REASONS[choice.stop]}

    def _end(self, choice: int, stop: StopCause) -> bytes:
        """Return the finish chunk of a choice up to its usage; one that showed nothing gets its role first."""
        role = b"" if choice in self._began else self._chunk(ReplyDelta("", choice=choice))
        return role + self._head + b'%d,"delta":{},"finish_reason":"%s"}]' % (choice, FINISH_REASONS[stop].encode())

    def _chunk(self, delta: ReplyDelta) -> bytes:
        opening = b',"delta":{"content":'
        if delta.choice not in self._began:
            self._began.add(delta.choice)
            opening = b',"delta":{"role":"assistant","content":'
        logprobs = b',"logprobs":' + encode(chat_logprobs(delta.logprobs)) if delta.logprobs else b""
        return b"".join((self._head, b"%d" % delta.choice, opening, encode(delta.text), b"}", logprobs, self._tail))
