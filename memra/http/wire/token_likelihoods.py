"""Log probabilities in OpenAI's two shapes: the chat's list of entries, and the completion's parallel lists.

Refuses to know where they come from; `memra.messages.generation.TokenLogprob` says what they mean. Called by
`chat_answer` and `completion_answer`.
"""

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from typing import Any

from memra.messages.generation import TokenLogprob
from memra.types import TokenId

LEAST_LOGPROB = -9999.0
"""In place of minus infinity, which JSON has no number for; OpenAI's own value for what is very unlikely."""

_Utf8 = getincrementaldecoder("utf-8")


def chat_logprobs(entries: Sequence[TokenLogprob], *, by_id: bool = False) -> Mapping[str, Any]:
    """Return a choice's `logprobs`; the text of part of a character is U+FFFD, and its bytes say which part.

    Args:
        entries: of the choice, thoughts and calls included.
        by_id: name tokens by their ids, as vLLM does, instead of by their text.
    """
    return {"content": [_chat_entry(entry, by_id=by_id) for entry in entries]}


class CompletionLogprobs:
    """The `logprobs` of one choice of a text completion, piece by piece."""

    def __init__(self, *, by_id: bool = False) -> None:
        """Begin with the first token; `by_id` as for `chat_logprobs`."""
        self._by_id = by_id
        self._decoder = _Utf8("replace")
        self._num_chars = 0

    def shape(self, entries: Sequence[TokenLogprob]) -> Mapping[str, Any]:
        """Return the next tokens' lists.

        `text_offset` counts characters of the choice's text; a token that begins inside a character has the offset of
        that character, and one that does not show that of the next. A prompt's first token has null for what there is
        of the others. The likeliest tokens are told by their text, the generated one among them; of two that read
        alike the likelier counts. There are none where none were asked for.
        """
        return {
            "tokens": [self._name(entry.token_id, entry.text_bytes) for entry in entries],
            "token_logprobs": [None if entry.logprob is None else _finite(entry.logprob) for entry in entries],
            "top_logprobs": [self._top(entry) for entry in entries] if any(entry.top for entry in entries) else None,
            "text_offset": [
                self._place(entry.text_bytes if entry.shown_bytes is None else entry.shown_bytes) for entry in entries
            ],
        }

    def _name(self, token_id: TokenId, text_bytes: bytes) -> str:
        return _id_name(token_id) if self._by_id else _name(text_bytes)

    def _top(self, entry: TokenLogprob) -> Mapping[str, float] | None:
        if entry.logprob is None:
            return None
        shape: dict[str, float] = {}
        for (token_id, logprob), text_bytes in zip(entry.top, entry.top_bytes, strict=True):
            shape.setdefault(self._name(token_id, text_bytes), _finite(logprob))
        shape.setdefault(self._name(entry.token_id, entry.text_bytes), _finite(entry.logprob))
        return shape

    def _place(self, text_bytes: bytes) -> int:
        start = self._num_chars
        self._num_chars += len(self._decoder.decode(text_bytes))
        return start


def _chat_entry(entry: TokenLogprob, *, by_id: bool) -> Mapping[str, Any]:
    chosen, *top = (
        _candidate(token_id, logprob, text_bytes, by_id=by_id)
        for (token_id, logprob), text_bytes in zip(
            ((entry.token_id, entry.logprob), *entry.top), (entry.text_bytes, *entry.top_bytes), strict=True
        )
    )
    return {**chosen, "top_logprobs": top}


def _candidate(token_id: TokenId, logprob: float | None, text_bytes: bytes, *, by_id: bool) -> Mapping[str, Any]:
    return {
        "token": _id_name(token_id) if by_id else text_bytes.decode(errors="replace"),
        "logprob": LEAST_LOGPROB if logprob is None else _finite(logprob),
        "bytes": list(text_bytes),
    }


def _id_name(token_id: TokenId) -> str:
    return f"token_id:{token_id}"


def _name(text_bytes: bytes) -> str:
    r"""Return a token's text; what is part of a character is spelled `bytes:\xe2\x82`, as OpenAI does."""
    try:
        return text_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text_bytes)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
