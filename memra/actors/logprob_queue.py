"""Log probabilities on their way up, in step with the text: none is told before its token's text is shown.

So a stop string's tokens never show, neither as text nor here. Knows ids and bytes; what a token stands for it asks the
reader of the answer. Owned by one reply.
"""

from dataclasses import replace

from memra.messages.generation import TokenLogprob
from memra.messages.prompt import AnswerReader


class LogprobQueue:
    """The entries of one answer, in order: held first, then ready, then taken."""

    def __init__(self, reader: AnswerReader) -> None:
        """Start empty.

        Args:
            reader: knows what a token stands for.
        """
        self._reader = reader
        self._held: list[TokenLogprob] = []
        self._ready: list[TokenLogprob] = []

    @property
    def has_ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._ready)

    def hold(self, entry: TokenLogprob) -> None:
        """Take the entry of a token whose text may not be shown yet."""
        spell = self._reader.token_bytes
        top_bytes = tuple(spell(token_id) for token_id, _ in entry.top)
        self._held.append(replace(entry, text_bytes=spell(entry.token_id), top_bytes=top_bytes))

    def release(self) -> None:
        """Note that the text of all tokens so far is shown."""
        self._ready += self._held
        self._held.clear()

    def take(self) -> tuple[TokenLogprob, ...]:
        """Return what is ready and was not taken before."""
        ready = tuple(self._ready)
        self._ready.clear()
        return ready
