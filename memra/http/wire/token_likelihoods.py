"""Log probabilities in OpenAI's two shapes: the chat's list of entries, and the completion's parallel lists.

Refuses to know where they come from; `memra.messages.generation.TokenLogprob` says what they mean. Called by
`chat_answer` and `completion_answer`.
"""

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from typing import Any

from memra.messages.generation import TokenLogprob

LEAST_LOGPROB = -9999.0
"""In place of minus infinity, which JSON has no number for; OpenAI's own value for what is very unlikely."""

_Utf8 = getincrementaldecoder("utf-8")


def chat_logprobs(entries: Sequence[TokenLogprob]) -> Mapping[str, Any]:
    """Return a choice's `logprobs`; the text of part of a character is U+FFFD, and its bytes say which part."""
    return {"content": [_chat_entry(entry) for entry in entries]}


class CompletionLogprobs:
    """The `logprobs` of one choice of a text completion, piece by piece."""

    def __init__(self) -> None:
        """Begin with the first token."""
        self._decoder = _Utf8("replace")
        self._num_chars = 0

    def shape(self, entries: Sequence[TokenLogprob]) -> Mapping[str, Any]:
        """Return the next tokens' lists.

        `text_offset` counts characters of the choice's text; a token that begins inside a character has the offset of
        that character. The likeliest tokens are told by their text, the generated one among them; of two that read
        alike the likelier counts. There are none where none were asked for.
        """
        return {
            "tokens": [_name(entry.text_bytes) for entry in entries],
            "token_logprobs": [_finite(entry.logprob) for entry in entries],
            "top_logprobs": [_top(entry) for entry in entries] if any(entry.top for entry in entries) else None,
            "text_offset": [self._place(entry.text_bytes) for entry in entries],
        }

    def _place(self, text_bytes: bytes) -> int:
        start = self._num_chars
        self._num_chars += len(self._decoder.decode(text_bytes))
        return start


def _chat_entry(entry: TokenLogprob) -> Mapping[str, Any]:
    top = [_candidate(logprob, text_bytes) for (_, logprob), text_bytes in zip(entry.top, entry.top_bytes, strict=True)]
    return {**_candidate(entry.logprob, entry.text_bytes), "top_logprobs": top}


def _candidate(logprob: float, text_bytes: bytes) -> Mapping[str, Any]:
    return {"token": text_bytes.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(text_bytes)}


def _top(entry: TokenLogprob) -> Mapping[str, float]:
    shape: dict[str, float] = {}
    for (_, logprob), text_bytes in zip(entry.top, entry.top_bytes, strict=True):
        shape.setdefault(_name(text_bytes), _finite(logprob))
    shape.setdefault(_name(entry.text_bytes), _finite(entry.logprob))
    return shape


def _name(text_bytes: bytes) -> str:
    r"""Return a token's text; what is part of a character is spelled `bytes:\xe2\x82`, as OpenAI does."""
    try:
        return text_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text_bytes)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
