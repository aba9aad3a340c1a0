"""The completion in this server's own shape: token ids beside the text, and the engine's own stop reasons.

Refuses to know HTTP. A stream has one unnamed event a token, then `event: done` or `event: error`, and no `[DONE]`.
See `memra.http.wire.answer.Answer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.http.wire.answer import Stamp, WholeChoice, encode, error_beside
from memra.messages.generation import ReplyDelta, ReplyFinished
from memra.types import StopCause

STOP_REASONS: Mapping[StopCause, str] = {
    StopCause.END_OF_SEQUENCE: "Eos",
    StopCause.STOP_STRING: "Callback",
    StopCause.STOP_TOKEN: "Callback",
    StopCause.MAX_TOKENS: "MaxNew",
    StopCause.CONTEXT_FULL: "ContextFull",
    StopCause.TOOL_CALLS: "Eos",
    StopCause.DEADLINE: "Deadline",
}
"""Callback is whatever the client itself asked to stop at."""


class NativeAnswer:
    """Writes native completions."""

    def __init__(self, stamp: Stamp) -> None:
        """Encode what never changes."""
        self._model = stamp.model
        self._head = b'data: {"model":' + encode(stamp.model) + b',"id":'

    def whole(self, choices: Sequence[WholeChoice], finished: ReplyFinished) -> bytes:
        """Return the JSON body of a complete answer; the shape has room for one."""
        (choice,) = choices
        said = {"model": self._model, "text": choice.answer.text, "tokens": choice.answer.token_ids}
        return encode({**said, **_summary(finished), **error_beside(finished)})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return one event a token; text that several tokens share comes with the last of them."""
        if not delta.token_ids:
            return self._head + b'null,"text":' + encode(delta.text) + b"}\n\n" if delta.text else b""
        silent = b"".join(self._head + b'%d,"text":""}\n\n' % token_id for token_id in delta.token_ids[:-1])
        return silent + self._head + b'%d,"text":' % delta.token_ids[-1] + encode(delta.text) + b"}\n\n"

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the summary."""
        return b"event: done\ndata: " + encode(_summary(finished)) + b"\n\n"

    def failure(self, error: bytes) -> bytes:
        """Return the error."""
        return b"event: error\ndata: " + error + b"\n\n"


def _summary(finished: ReplyFinished) -> Mapping[str, Any]:
    usage = finished.usage
    return {
        "stop_reason": STOP_REASONS[finished.stop],
        "n_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "elapsed_s": round(usage.elapsed_s, 6),
    }
