"""OpenAI's text completion, whole and streamed.

Refuses to know HTTP. What is the same in every chunk is encoded once per answer. See `memra.http.wire.answer.Answer`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
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
from memra.http.wire.token_likelihoods import CompletionLogprobs
from memra.messages.generation import ReplyDelta, ReplyFinished
from memra.types import StopCause


class CompletionAnswer:
    """Writes text completions.

    Args:
        wants_usage_chunk: put the usage in a chunk of its own, and `usage: null` in all others.
        wants_logprobs: every choice has `logprobs`, also where it is empty.
        names_ids: tokens are named by their ids there.
    """

    def __init__(
        self, stamp: Stamp, *, wants_usage_chunk: bool, wants_logprobs: bool = False, names_ids: bool = False
    ) -> None:
        """Encode what never changes."""
        self._wants_usage_chunk = wants_usage_chunk
        self._wants_logprobs = wants_logprobs
        self._names_ids = names_ids
        self._logprobs: defaultdict[int, CompletionLogprobs] = defaultdict(partial(CompletionLogprobs, by_id=names_ids))
        self._common = stamp.openai_object("text_completion")
        self._head = b"data: " + encode(self._common)[:-1] + b',"choices":[{"index":'
        self._tail = b',"finish_reason":null}]' + (b',"usage":null' if wants_usage_chunk else b"") + b"}\n\n"

    def whole(self, choices: Sequence[WholeChoice], finished: ReplyFinished) -> bytes:
        """Return the JSON body of complete answers."""
        shapes = [self._whole(choice) for choice in choices]
        usage = usage_object(finished.usage)
        return encode({**self._common, "choices": shapes, "usage": usage, **error_beside(finished)})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the chunk for more text, and that for the end of its choice; empty when there is nothing."""
        chunk = self._chunk(delta) if delta.text or delta.logprobs else b""
        if delta.stop is None:
            return chunk
        end = self._end(delta.choice, delta.stop)
        return chunk + data_line({**end, "usage": None} if self._wants_usage_chunk else end)

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the finish chunk with empty text, the usage and the end."""
        chunk = self._end(finished.choice, finished.stop)
        usage = usage_object(finished.usage)
        if not self._wants_usage_chunk:
            return data_line({**chunk, "usage": usage}) + DONE
        usage_chunk = {**self._common, "choices": [], "usage": usage}
        return data_line({**chunk, "usage": None}) + data_line(usage_chunk) + DONE

    def failure(self, error: bytes) -> bytes:
        """Return the error and the end."""
        return openai_failure(error)

    def _whole(self, choice: WholeChoice) -> Mapping[str, Any]:
        answer = choice.answer
        shape: dict[str, Any] = {"index": answer.choice, "text": answer.text}
        if self._wants_logprobs:
            shape["logprobs"] = CompletionLogprobs(by_id=self._names_ids).shape(answer.logprobs)
        return {**shape, "finish_reason": FINISH_REASONS[choice.stop]}

    def _chunk(self, delta: ReplyDelta) -> bytes:
        logprobs = b""
        if delta.logprobs:
            logprobs = b',"logprobs":' + encode(self._logprobs[delta.choice].shape(delta.logprobs))
        return b"".join((self._head, b'%d,"text":' % delta.choice, encode(delta.text), logprobs, self._tail))

    def _end(self, choice: int, stop: StopCause) -> Mapping[str, Any]:
        return {**self._common, "choices": [{"index": choice, "text": "", "finish_reason": FINISH_REASONS[stop]}]}
