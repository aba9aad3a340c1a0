"""One answer while it is read: what came, what is taken, and what goes out.

Trade: the few moves that every dialect's grammar is written with. A grammar is a generator that yields whenever it
needs text that has not come yet, so it reads as if the whole answer were there, and its result cannot depend on where
the text was cut. It refuses to know any dialect. Called by `scripted_parser` and by the readers of calls.
"""

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

from memra.chat.tool_dialects.contract import MAX_HELD_CHARS, ArgumentsPiece, CallBegun, CallEnded, Piece, TextPiece
from memra.chat.tool_dialects.declared_tools import DeclaredTools

_T = TypeVar("_T")
Script = Generator[None, None, _T]
"""Yields when it needs more text than there is."""

Write = Callable[[str], None]
"""Takes more of some text."""

NAME = re.compile(r"""[^\s<>()\[\]{}"'`,;=|]*""")
"""What the name of a tool or a parameter may be made of where no quotes end it."""

_TOKEN = re.compile(r"\]<\]\w+\[>\[|<[^<>\s]+>|\[[A-Z_]+\]")
_SPACE = re.compile(r"[ \t\r\n]*")


class MalformedCallError(Exception):
    """The text is no call after all; what was taken of it is text."""


class AnswerEndedError(Exception):
    """The answer ended where a call needs more."""


class Reading:
    """The state of one answer; owned by one parser.

    Attributes:
        tools: those of the request.
        is_ended: no more text will come.
        has_whole_arguments: the call that began has all its arguments, and only markup is missing.
    """

    def __init__(self, tools: DeclaredTools) -> None:
        self.tools = tools
        self.is_ended = False
        self.has_whole_arguments = False
        self._text = ""
        self._at = 0
        self._block: list[str] = []
        self._num_held = 0
        self._pieces: list[Piece] = []
        self._space = ""
        self._follows_call = False
        self._is_call_open = False
        self._has_arguments = False

    # What comes

    def push(self, text: str) -> None:
        """Add text that came."""
        self._text = self._text[self._at :] + text
        self._at = 0

    @property
    def is_read(self) -> bool:
        """Whether all that came is taken."""
        return self._at == len(self._text)

    def peek(self, count: int = 1) -> Script[str]:
        """The next characters, without taking them; fewer only at the end of the answer."""
        while len(self._text) - self._at < count and not self.is_ended:
            yield
        return self._text[self._at : self._at + count]

    def accept(self, literal: str) -> Script[bool]:
        """Take a literal if it comes next; decided at the first character that differs."""
        while True:
            ahead = self._text[self._at : self._at + len(literal)]
            if ahead == literal:
                self.take(len(literal))
                return True
            if self.is_ended or not literal.startswith(ahead):
                return False
            yield

    def accept_any(self, literals: Sequence[str]) -> Script[bool]:
        """Take the first of these literals that comes next."""
        for literal in literals:
            if (yield from self.accept(literal)):
                return True
        return False

    def close(self, closers: Sequence[str]) -> Script[bool]:
        """Take a marker that may stand behind a call, with the space before it, and be done with it.

        Where the answer ends inside the marker, half of it is no text either.
        """
        yield from self.skip_space()
        found = yield from self.accept_any(closers)
        rest = self._text[self._at :]
        if not found and self.is_ended and rest and any(closer.startswith(rest) for closer in closers):
            self.take(len(rest))
            found = True
        if found:
            self._close()
        return found

    def expect(self, literal: str) -> Script[None]:
        """Take a literal that must come next.

        Raises:
            MalformedCallError: something else comes.
            AnswerEndedError: the answer ends before it could come.
        """
        if not (yield from self.accept(literal)):
            raise self.refusal(literal)

    def refusal(self, literal: str = "") -> Exception:
        """Why the text cannot go on as a call: the answer ended (perhaps inside `literal`), or it is none."""
        rest = self._text[self._at :]
        return AnswerEndedError() if self.is_ended and literal.startswith(rest) else MalformedCallError()

    def skip_space(self) -> Script[None]:
        """Take the space that comes next, all of it."""
        yield from self.word(_SPACE)

    def run(self, pattern: re.Pattern[str]) -> str:
        """Take what a pattern (a repeated character class) matches in the text that is there; may be nothing."""
        match = pattern.match(self._text, self._at)
        return "" if match is None or match.end() == self._at else self.take(match.end() - self._at)

    def word(self, pattern: re.Pattern[str]) -> Script[str]:
        """Take what a pattern (a repeated character class) matches, up to a character that it does not match."""
        runs = []
        while True:
            if found := self.run(pattern):
                runs.append(found)
            if self._at < len(self._text) or self.is_ended:
                return "".join(runs)
            yield

    def until(self, end: str) -> Script[str]:
        """Take the text before a literal, and the literal; return the text."""
        runs: list[str] = []
        yield from self.pass_until((end,), runs.append)
        return "".join(runs)

    def pass_until(self, ends: tuple[str, ...], write: Write) -> Script[None]:
        """Take the text before the first of these literals, written as it comes, and the literal, which is not.

        Args:
            ends: one that contains another has to begin before it and comes first.
            write: takes the text.
        """
        while True:
            starts = [at for end in ends if (at := self._text.find(end, self._at)) >= 0]
            certain = min(starts, default=len(self._text) - len(held_end(self._text, ends, self._at)))
            if certain > self._at:
                write(self.take(certain - self._at))
            for end in ends:
                if self._text.startswith(end, self._at):
                    self.take(len(end))
                    return
            if self.is_ended:
                raise AnswerEndedError
            yield

    def take(self, count: int) -> str:
        """Take characters that are there.

        Raises:
            MalformedCallError: more would be held back than is allowed; as much as is allowed was taken.
        """
        is_too_long = not self._is_call_open and self._num_held + count > MAX_HELD_CHARS
        count = min(count, MAX_HELD_CHARS - self._num_held) if is_too_long else count
        taken = self._text[self._at : self._at + count]
        self._at += count
        self._num_held += count
        self._block.append(taken)
        if is_too_long:
            raise MalformedCallError
        return taken

    def find(self, markers: tuple[str, ...]) -> Script[str | None]:
        """Pass text on up to the first marker, and take the marker; None when the answer ends without one."""
        while True:
            starts = [(at, marker) for marker in markers if (at := self._text.find(marker, self._at)) >= 0]
            if starts:
                start, marker = min(starts)
                self._pass_to(start)
                self.take(len(marker))
                return marker
            held = "" if self.is_ended else held_end(self._text, markers, self._at)
            self._pass_to(len(self._text) - len(held))
            if self.is_ended:
                return None
            yield

    def _pass_to(self, end: int) -> None:
        self._emit_text(self._text[self._at : end])
        self._at = end

    # What goes out

    def begin(self, name: str) -> None:
        """Begin the call of a tool.

        Raises:
            MalformedCallError: no tool of that name was declared.
        """
        if name not in self.tools:
            raise MalformedCallError
        self._block.insert(0, self._space)
        self._space = ""
        self._pieces.append(CallBegun(name))
        self._is_call_open = True
        self._has_arguments = False

    def argue(self, text: str) -> None:
        """Add to the arguments of the call that began last."""
        if text:
            self._has_arguments = True
            self._pieces.append(ArgumentsPiece(text))

    def end(self) -> None:
        """End the call; one without arguments gets an empty object."""
        if not self._has_arguments:
            self.argue("{}")
        self._pieces.append(CallEnded())
        self._follows_call = True
        self._close()

    def give_up(self) -> None:
        """What was taken since the last call ended, and was no marker of it, is text; so is a call that began since."""
        source = "".join(self._block)
        self._close()
        self._emit_text(source)

    def end_early(self) -> None:
        """The answer is over: a call whose arguments are whole is complete, any other that began stays open.

        What came of a call and was not taken, because more would have had to follow, is no text.
        """
        if not self._is_call_open:
            self.give_up()
            return
        self._at = len(self._text)
        if self.has_whole_arguments:
            self.end()
        else:
            self._close()

    def drain(self) -> list[Piece]:
        """What is certain since the last time, neighbours joined; at the end with the space that touches no call."""
        if self.is_ended and self._space and not self._follows_call:
            self._pieces.append(TextPiece(self._space))
            self._space = ""
        pieces, self._pieces = self._pieces, []
        return joined(pieces) if len(pieces) > 1 else pieces

    def _emit_text(self, text: str) -> None:
        """Pass text on; space at its end waits, for a call may follow."""
        if not text:
            return
        text = self._space + text
        # Space over the limit cannot wait, whatever follows.
        shown = text[: max(len(text.rstrip(" \t\r\n")), len(text) - MAX_HELD_CHARS)]
        self._space = text[len(shown) :]
        if shown:
            self._follows_call = False
            self._pieces.append(TextPiece(shown))

    def _close(self) -> None:
        self._block.clear()
        self._num_held = 0
        self._is_call_open = False
        self.has_whole_arguments = False


def held_end(text: str, markers: tuple[str, ...], start: int = 0) -> str:
    """The end of a text that could be the beginning of a marker; the longest such end, without a whole marker."""
    longest = max(map(len, markers), default=1)
    match = _beginnings(markers).search(text, max(start, len(text) - longest + 1))
    return "" if match is None else match[0]


@lru_cache(maxsize=256)
def _beginnings(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Every beginning of a marker but the whole, at the end of a text; the leftmost is the longest."""
    beginnings = sorted({marker[:end] for marker in markers for end in range(1, len(marker))}, key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(map(re.escape, beginnings))})\\Z" if beginnings else r"(?!)")


def tokens_within(text: str) -> list[str]:
    """The parts of some markup that may be special tokens: `<...>`, capitals in `[]`, and MiniMax's `]<]...[>[`."""
    return _TOKEN.findall(text)


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces with neighbours of one kind made one."""
    result: list[Piece] = []
    for piece in pieces:
        match (result[-1] if result else None), piece:
            case TextPiece(before), TextPiece(after):
                result[-1] = TextPiece(before + after)
            case ArgumentsPiece(before), ArgumentsPiece(after):
                result[-1] = ArgumentsPiece(before + after)
            case _:
                result.append(piece)
    return result
