"""The calls of one answer: a dialect's pieces become the deltas that clients are told.

Gives every call its place and its id. Refuses to know dialects, tokens and stop strings. Called by `answer_reader`.
"""

import secrets
from collections.abc import Iterable, Iterator

from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded, Piece, TextPiece, ToolParser
from memra.messages.generation import ToolCallDelta

_ID_BYTES = 12
"""Of chance in an id: 96 bits, so that no two calls of a conversation ever share one."""

Told = str | ToolCallDelta
"""Text, or more of a call."""


class CallReader:
    """Reads one answer; owned by one task."""

    def __init__(self, parser: ToolParser, *, is_single: bool = False) -> None:
        """Begin an answer.

        Args:
            parser: fresh, for this answer alone.
            is_single: the answer ends with its first complete call.
        """
        self._parser = parser
        self._is_single = is_single
        self._num_begun = 0
        self._num_complete = 0

    @property
    def has_calls(self) -> bool:
        """Whether a complete call was read."""
        return self._num_complete > 0

    @property
    def is_over(self) -> bool:
        """Whether the only call that is wanted was read."""
        return self._is_single and self.has_calls

    def feed(self, text: str) -> Iterator[Told]:
        """Take more text and tell what is certain now, in order; whoever stops listening has not read what follows."""
        return self._tell(self._parser.feed(text))

    def finish(self) -> Iterator[Told]:
        """End the answer and tell what was held back."""
        return self._tell(self._parser.finish())

    def _tell(self, pieces: Iterable[Piece]) -> Iterator[Told]:
        for piece in pieces:
            match piece:
                case TextPiece(text):
                    yield text
                case CallBegun(name):
                    yield self._begin(name)
                case ArgumentsPiece(text):
                    yield ToolCallDelta(self._num_begun - 1, text)
                case CallEnded():
                    self._num_complete += 1
            if self.is_over:
                return

    def _begin(self, name: str) -> ToolCallDelta:
        self._num_begun += 1
        return ToolCallDelta(self._num_begun - 1, call_id=f"call_{secrets.token_hex(_ID_BYTES)}", name=name)
