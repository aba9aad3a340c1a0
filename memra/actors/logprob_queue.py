"""Log probabilities on their way up, in step with the text: none is told before its token's text is shown.

So a token that lies within a stop string never shows, neither as text nor here. Counts bytes; what a token stands for
and how much text is held back it asks the reader of the answer. Owned by one reply.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from memra.messages.generation import TokenLogprob
from memra.messages.prompt import AnswerReader


@dataclass(frozen=True, slots=True)
class _Held:
    """An entry, and where its token's bytes lie in all that was read."""

    entry: TokenLogprob
    start: int
    end: int


class LogprobQueue:
    """The entries of one answer, in order: held first, then ready, then taken."""

    def __init__(self, reader: AnswerReader, *, echo: str = "") -> None:
        """Start empty.

        Args:
            reader: that has read nothing.
            echo: the prompt's text, where it is told before the answer's.
        """
        self._reader = reader
        self._echo = echo.encode(errors="replace")
        self._num_echoed = 0
        self._held: deque[_Held] = deque()
        self._ready: list[TokenLogprob] = []
        self._num_read = 0

    @property
    def has_ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._ready)

    def note(self, entry: TokenLogprob) -> None:
        """Take the entry of the token that was read last; those whose text is shown by now are ready."""
        spell = self._reader.token_bytes
        top_bytes = tuple(spell(token_id) for token_id, _ in entry.top)
        start, self._num_read = self._num_read, self._reader.num_read_bytes
        hidden = b"" if self._num_read == start else None
        spelled = replace(entry, text_bytes=spell(entry.token_id), top_bytes=top_bytes, shown_bytes=hidden)
        self._held.append(_Held(spelled, start, self._num_read))
        num_shown = self._num_read - self._reader.num_held_bytes
        while self._held and self._held[0].end <= num_shown:
            self._ready.append(self._held.popleft().entry)

    def note_prompt(self, entries: Iterable[TokenLogprob]) -> None:
        """Take entries of the prompt's next tokens; they are ready, for the text that they are in was told before."""
        spell = self._reader.token_bytes
        for entry in entries:
            text_bytes, top_bytes = spell(entry.token_id), tuple(spell(token_id) for token_id, _ in entry.top)
            # What was put around the text does not stand in it, nor does a space that a tokenizer puts in front.
            spellings = (text_bytes, text_bytes.removeprefix(b" "))
            shown = next((part for part in spellings if self._echo.startswith(part, self._num_echoed)), b"")
            self._num_echoed += len(shown)
            self._ready.append(replace(entry, text_bytes=text_bytes, top_bytes=top_bytes, shown_bytes=shown))

    def end(self) -> None:
        """Note that the answer is complete: whatever is shown in part is ready, and the rest is dropped."""
        num_shown = self._reader.num_read_bytes - self._reader.num_held_bytes
        is_stopped = self._reader.is_stopped
        self._ready += [held.entry for held in self._held if held.start < num_shown or not is_stopped]
        self._held.clear()

    def take(self) -> tuple[TokenLogprob, ...]:
        """Return what is ready and was not taken before."""
        ready = tuple(self._ready)
        self._ready.clear()
        return ready
