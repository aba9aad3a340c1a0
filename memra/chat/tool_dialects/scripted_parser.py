"""The parser of every dialect: text passes until a marker, and a script reads what follows it.

Trade: attempts. What a script takes becomes calls, or goes out as text when it turns out to be none; the answer goes on
at the character where the script stopped, so the work is linear in the text. It refuses to know what the scripts read.
"""

from collections.abc import Callable, Mapping, Sequence

from memra.chat.tool_dialects.contract import Piece
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.reading import AnswerEndedError, MalformedCallError, Reading, Script

ReadBlock = Callable[[Reading, str], Script[None]]
"""Reads calls after a marker, which is taken; raises when what comes is no call."""

ReadOpening = Callable[[Reading], Script[None]]
"""Reads calls without a marker at the start of an answer, after its space."""


class ScriptedParser:
    """Reads one answer; fulfils `contract.ToolParser`."""

    def __init__(
        self,
        tools: DeclaredTools,
        *,
        markers: Sequence[str],
        read_block: ReadBlock,
        openings: Mapping[str, ReadOpening] | None = None,
    ) -> None:
        """Begin an answer.

        Args:
            tools: those of the request.
            markers: what begins a block of calls; none is a part of another one.
            read_block: reads the block after a marker.
            openings: what an answer may begin with in place of a marker, by its first character.
        """
        self._reading = Reading(tools)
        self._markers = tuple(markers)
        self._read_block = read_block
        self._openings = openings or {}
        self._script = self._read_answer()
        self._is_over = False

    def feed(self, text: str) -> list[Piece]:
        """Take more of the answer and return what is certain now."""
        self._reading.push(text)
        return self._go_on()

    def finish(self) -> list[Piece]:
        """End the answer and return the rest."""
        self._reading.is_ended = True
        return self._go_on()

    def _go_on(self) -> list[Piece]:
        if not self._is_over:
            self._is_over = next(self._script, _OVER) is _OVER
        return self._reading.drain()

    def _read_answer(self) -> Script[None]:
        yield from self._attempt(self._read_opening())
        while (marker := (yield from self._reading.find(self._markers))) is not None:
            yield from self._attempt(self._read_block(self._reading, marker))

    def _read_opening(self) -> Script[None]:
        yield from self._reading.skip_space()
        opening = self._openings.get((yield from self._reading.peek()))
        if opening is None:
            raise MalformedCallError
        yield from opening(self._reading)

    def _attempt(self, block: Script[None]) -> Script[None]:
        try:
            yield from block
        except MalformedCallError:
            # What is wrong only because nothing follows (`Tru`) was cut off.
            if self._reading.is_ended and self._reading.is_read:
                self._reading.end_early()
            else:
                self._reading.give_up()
        except AnswerEndedError:
            self._reading.end_early()
        else:
            # Space behind the last call, where no marker closed the block.
            self._reading.give_up()


_OVER = object()
