"""What every tool dialect offers: a parser of answers and a grammar for forced calls.

Trade: the few shapes that the rest of the house sees. It refuses to know any dialect; `registry` chooses among them.

What a parser promises, whatever the dialect:

- Pieces do not depend on how the text is cut: joined, they are those of the whole text fed at once.
- No byte is lost. A block that is no call, or calls a tool that was not declared, comes out as text.
- A call begins as soon as its name is known, and its arguments come while they are written. When they turn out to be
  malformed the call never gets its `CallEnded`, and its whole source follows as text.
- An answer that is cut off inside a call leaves that call without `CallEnded`; nothing is repeated, and no half of an
  escape or of a closing marker is shown.
- Space before a call, between calls and behind the last one belongs to the format and is dropped; all other text is
  kept, before, between and after calls.
- At most `MAX_HELD_CHARS` characters wait for what they turn out to be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MAX_HELD_CHARS = 1024
"""How much text may wait for the name of a possible call: more than any name with its markup, less than a page."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More of what the reader of the answer sees."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of a declared tool begins."""

    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """More of the JSON of the call that began last; the pieces of one call make one object."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call that began last is complete: its arguments are one whole JSON object."""


Piece = TextPiece | CallBegun | ArgumentsPiece | CallEnded


class ToolParser(Protocol):
    """Reads one answer; owned by one task."""

    def feed(self, text: str) -> list[Piece]:
        """Take more of the answer, markers that are special tokens included as their text; return what is certain."""
        ...

    def finish(self) -> list[Piece]:
        """End the answer and return the rest; call once."""
        ...


class ToolDialect(Protocol):
    """One way to write calls; holds no state of an answer, so one object serves all."""

    @property
    def name(self) -> str:
        """Names the dialect in logs and settings."""
        ...

    @property
    def tokens(self) -> tuple[str, ...]:
        """Markers of calls that may be special tokens; a parser needs their text, and a forced call the tokens."""
        ...

    def knows(self, template: str) -> bool:
        """Whether a chat template with this source speaks the dialect."""
        ...

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer to a request with these tools, declared as in OpenAI's interface."""
        ...

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Lark for llguidance that allows calls and nothing else.

        Args:
            tools: all that the request declares.
            names: those that may be called; all of them declared.
            at_least_one: one call or more, up to `lark_grammar.MAX_CALLS`; otherwise exactly one.

        Returns:
            A grammar that begins with `start`. A marker that may be one token of the vocabulary stands in a rule of
            its own; see `lark_grammar.with_tokens`.
        """
        ...
