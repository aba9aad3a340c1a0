"""The messages of a harmony answer told apart by their channels: thoughts, text, and calls of functions.

Knows the frame in which gpt-oss writes its answers, as OpenAI's harmony format describes it; refuses to know tokens and
what a call says. `analysis` is thought, `final` and `commentary` are text, and a message with a recipient among the
functions goes on in a frame, for whoever reads calls: of the several ways in which models write that frame, always in
the one of the chat template. Called by `reasoning`.
"""

import re
from dataclasses import dataclass

from memra.chat.spans import Span, may_begin_at

HARMONY_MARK = "<|channel|>analysis"
"""A template that writes thoughts into this channel speaks harmony."""

_START = "<|start|>"
_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", _START)
_HEADER_BEGINS = (_START, "<|channel|>", "to=", "<|constrain|>", _MESSAGE)
_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")
_CALL_HEADER = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
_CALL_END = "<|call|>"
_MAX_HEADER_CHARS = 512
"""A header is a channel, a recipient and a type; function names have at most 64 characters."""


@dataclass(frozen=True, slots=True)
class _Message:
    """Where one message goes.

    Attributes:
        function: that it calls, or empty; its frame goes with it.
    """

    is_thought: bool = False
    function: str = ""


_TEXT = _Message()


class HarmonySplitter:
    """Reads the frames of one answer."""

    def __init__(self, *, is_thinking: bool, keeps_calls: bool, is_text: bool = False) -> None:
        """Begin an answer.

        Args:
            is_thinking: the prompt ends inside a thought, rather than before a header.
            keeps_calls: messages to functions keep their frame; otherwise they are text without one.
            is_text: the prompt ends inside the text that is the answer proper.
        """
        self._keeps_calls = keeps_calls
        begun = _TEXT if is_text else None
        self._message: _Message | None = _Message(is_thought=True) if is_thinking else begun
        self._held = ""

    @property
    def is_thinking(self) -> bool:
        """Whether the answer so far ends inside a thought."""
        return self._message is not None and self._message.is_thought

    def push(self, text: str) -> list[Span]:
        """Take more text and return what is certain now."""
        return self._read(text, is_last=False)

    def flush(self) -> list[Span]:
        """End the answer and return what was held back; a header without a message says nothing."""
        return self._read("", is_last=True)

    def _read(self, text: str, *, is_last: bool) -> list[Span]:
        self._held += text
        spans: list[Span] = []
        while self._held:
            message = self._message
            is_read = (
                self._read_header(spans, is_last=is_last)
                if message is None
                else self._read_body(message, spans, is_last=is_last)
            )
            if not is_read:
                break
        return spans

    def _read_header(self, spans: list[Span], *, is_last: bool) -> bool:
        """Return whether a header was read, or is not there."""
        header, found, rest = self._held.partition(_MESSAGE)
        lead = self._held.lstrip()
        is_begun = lead.startswith(_HEADER_BEGINS)
        may_begin = is_begun or (not is_last and any(begin.startswith(lead) for begin in _HEADER_BEGINS))
        limit = _MAX_HEADER_CHARS if found else _MAX_HEADER_CHARS + len(_MESSAGE)
        if not may_begin or len(header) > limit:
            self._message = _TEXT
            return True
        if found:
            self._held = rest
            self._message = message = self._message_of(header)
            if message.function:
                spans.append(Span(_CALL_HEADER.format(message.function)))
            return True
        if is_last:
            self._held = ""
        return False

    def _read_body(self, message: _Message, spans: list[Span], *, is_last: bool) -> bool:
        """Return whether the message came to its end."""
        text = self._held
        found = min(((place, end) for end in _ENDS if (place := text.find(end)) >= 0), default=None)
        if found is None:
            keep = len(text) if is_last else may_begin_at(text, _ENDS)
            _add(spans, text[:keep], message)
            self._held = text[keep:]
            return False
        place, end = found
        _add(spans, text[:place], message)
        self._held = text[place:] if end == _START else text[place + len(end) :]
        if message.function:
            spans.append(Span(_CALL_END))
        self._message = None
        return True

    def _message_of(self, header: str) -> _Message:
        function = _RECIPIENT.search(header) if self._keeps_calls else None
        return _Message(is_thought=HARMONY_MARK in header) if function is None else _Message(function=function[1])


def _add(spans: list[Span], text: str, message: _Message) -> None:
    if text:
        spans.append(Span(text, is_thought=message.is_thought))
