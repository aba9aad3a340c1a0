"""The ordered content of one answer: deltas go in, items that open, grow and close one after the other come out.

Refuses to know how an item is written. The shapes that number the parts of an answer (`responses_answer`,
`messages_answer`) write from what comes out here, whole and streamed alike, so that both show the same items.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from memra.errors import IntegrityError
from memra.messages.generation import ReplyDelta, ToolCallDelta
from memra.types import StopCause

_CUT = frozenset({StopCause.MAX_TOKENS, StopCause.CONTEXT_FULL, StopCause.DEADLINE})


class ItemKind(Enum):
    """What an item holds."""

    REASONING = auto()
    TEXT = auto()
    CALL = auto()


@dataclass(slots=True)
class Item:
    """One part of an answer; grows while the answer does.

    Attributes:
        index: from 0, in order of appearance.
        pieces: of the text, of the thoughts, or of the arguments' JSON.
        call_id: of a call.
        name: of the tool that a call calls.
        is_open: more may come.
        is_cut: the answer ended before the item did.
    """

    kind: ItemKind
    index: int
    pieces: list[str] = field(default_factory=list, repr=False)
    call_id: str = ""
    name: str = ""
    is_open: bool = True
    is_cut: bool = False

    @property
    def content(self) -> str:
        """All pieces together."""
        return "".join(self.pieces)


class Step(Enum):
    """What happened to an item."""

    OPENED = auto()
    GREW = auto()
    CLOSED = auto()


Change = tuple[Step, Item, str]
"""A step, its item, and what the item grew by."""


class AnswerItems:
    """Reads one answer.

    At most one item is open. Within a delta thoughts come first, then more of the call that is open, then text, then
    new calls. Blank text opens no item: it waits for words to stand before, and is dropped where none follow.
    """

    def __init__(self) -> None:
        """Begin an answer."""
        self.items: list[Item] = []
        self._blank = ""

    def take(self, delta: ReplyDelta) -> Iterator[Change]:
        """Take more of the answer and tell what it changes.

        Raises:
            IntegrityError: more of a call that is not open.
        """
        if delta.reasoning:
            yield from self._write(ItemKind.REASONING, delta.reasoning)
        begun, new = _split(delta.tool_calls)
        for call in begun:
            yield from self._go_on(call)
        if delta.text:
            yield from self._write_text(delta.text)
        for call in new:
            yield from self._go_on(call) if call.name is None else self._call(call)

    def end(self, stop: StopCause) -> Iterator[Change]:
        """End the answer; one that holds nothing but blank text keeps it."""
        if self._blank and not self.items:
            yield from self._write(ItemKind.TEXT, self._blank)
        if self.items:
            self.items[-1].is_cut = stop in _CUT
        yield from self._close()

    def _write_text(self, text: str) -> Iterator[Change]:
        if self._is_open(ItemKind.TEXT):
            yield from self._write(ItemKind.TEXT, text)
        elif text.isspace():
            self._blank += text
        else:
            yield from self._write(ItemKind.TEXT, self._blank + text)

    def _write(self, kind: ItemKind, piece: str) -> Iterator[Change]:
        if not self._is_open(kind):
            yield from self._open(Item(kind, len(self.items)))
        yield self._grow(piece)

    def _call(self, call: ToolCallDelta) -> Iterator[Change]:
        item = Item(ItemKind.CALL, len(self.items), call_id=call.call_id or "", name=call.name or "")
        yield from self._open(item)
        if call.arguments:
            yield self._grow(call.arguments)

    def _go_on(self, call: ToolCallDelta) -> Iterator[Change]:
        if not self._is_open(ItemKind.CALL):
            raise IntegrityError("More of a tool call came after its end.")
        if call.arguments:
            yield self._grow(call.arguments)

    def _open(self, item: Item) -> Iterator[Change]:
        yield from self._close()
        self._blank = ""
        self.items.append(item)
        yield Step.OPENED, item, ""

    def _grow(self, piece: str) -> Change:
        item = self.items[-1]
        item.pieces.append(piece)
        return Step.GREW, item, piece

    def _close(self) -> Iterator[Change]:
        if self.items and self.items[-1].is_open:
            self.items[-1].is_open = False
            yield Step.CLOSED, self.items[-1], ""

    def _is_open(self, kind: ItemKind) -> bool:
        return bool(self.items) and self.items[-1].is_open and self.items[-1].kind is kind


def _split(calls: Sequence[ToolCallDelta]) -> tuple[Sequence[ToolCallDelta], Sequence[ToolCallDelta]]:
    """Return what goes on with the call that is open, and what begins with a new one."""
    first_new = next((place for place, call in enumerate(calls) if call.name is not None), len(calls))
    return calls[:first_new], calls[first_new:]
