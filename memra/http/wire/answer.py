"""What all shapes of an answer share: the stamp, the usage, and the interface that streams write through.

Refuses to know HTTP. The shapes are `chat_answer`, `completion_answer` and `native_answer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from memra.errors import DeadlineExceededError
from memra.http.errors import error_object
from memra.http.wire.streamed_answer import StreamedAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, Usage
from memra.types import ModelName, RequestId, StopCause

FINISH_REASONS: Mapping[StopCause, str] = {
    StopCause.END_OF_SEQUENCE: "stop",
    StopCause.STOP_STRING: "stop",
    StopCause.STOP_TOKEN: "stop",
    StopCause.MAX_TOKENS: "length",
    StopCause.CONTEXT_FULL: "length",
    StopCause.TOOL_CALLS: "tool_calls",
    StopCause.DEADLINE: "error",
}
"""OpenAI's words; `error` is ours, for an answer that was cut short."""

DONE = b"data: [DONE]\n\n"
"""The line that ends OpenAI's streams."""

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is the same in every part of one answer.

    Attributes:
        created: unix seconds.
        fingerprint: identifies the build that computed the answer.
    """

    request_id: RequestId
    created: int
    model: ModelName
    fingerprint: str

    def openai_object(self, kind: str) -> dict[str, Any]:
        """Return what every part of an OpenAI-shaped answer of a kind begins with."""
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """One complete answer.

    Attributes:
        answer: all of its deltas in one, with the choice's number.
    """

    answer: ReplyDelta
    stop: StopCause


class Answer(StreamedAnswer, Protocol):
    """Writes one answer, either as a whole or as a stream; made for one request, not shared.

    Its deltas say where a choice ends.
    """

    def whole(self, choices: Sequence[WholeChoice], finished: ReplyFinished) -> bytes:
        """Return the JSON body of complete answers, one or more, in order of their numbers."""
        ...


def usage_object(usage: Usage) -> Mapping[str, Any]:
    """Return OpenAI's usage object, with our elapsed seconds."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "elapsed_s": round(usage.elapsed_s, 6),
    }


def error_beside(finished: ReplyFinished) -> Mapping[str, Any]:
    """Return the `error` that stands beside an answer which its deadline cut short; empty for every other."""
    return {"error": error_object(late_error())} if finished.stop is StopCause.DEADLINE else {}


def late_error() -> DeadlineExceededError:
    """Return what is said of an answer that its deadline cut short."""
    return DeadlineExceededError("The deadline passed before the answer was complete; raise `timeout_ms`, or stream.")


def data_line(value: Any) -> bytes:
    """Return one unnamed event of a stream."""
    return b"data: " + encode(value) + b"\n\n"


def openai_failure(error: bytes) -> bytes:
    """Return the end of an OpenAI-shaped stream that failed."""
    return b"data: " + error + b"\n\n" + DONE
