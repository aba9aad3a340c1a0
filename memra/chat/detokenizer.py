"""One answer's tokens turned into text as they come, never half a character.

Knows bytes and UTF-8; refuses to know stop strings and requests. Called by `answer_reader`.
"""

from codecs import utf_8_decode
from collections.abc import Iterable, Sequence

from memra.types import TokenId


class Detokenizer:
    """The text of one growing answer; owned by one task.

    Bytes that may still become a character are held back, at most three of them, and never show where the answer ends
    before it is whole; bytes that cannot become one turn into one U+FFFD for each broken sequence. Control tokens have
    no bytes and so never show.

    The first space of an answer: where a tokenizer puts a space in front of every stretch of text, an answer that
    begins such a stretch, because the prompt ended with a control token, begins with a space that nobody meant, and it
    is dropped. An answer that goes on with the prompt's text keeps its space, which is the one between two words.
    """

    def __init__(self, pieces: Sequence[bytes], *, drop_first_space: bool = False) -> None:
        """Begin an answer.

        Args:
            pieces: the bytes of every token, by id (`Tokenizer.pieces`); shared, not copied.
            drop_first_space: whether the answer begins a stretch of text that the tokenizer gave a space.
        """
        self._pieces = pieces
        self._num_read_bytes = 0
        self._pending = b""
        self._drops_space = drop_first_space

    @property
    def num_read_bytes(self) -> int:
        """What all tokens so far add to a text."""
        return self._num_read_bytes

    @property
    def num_held_bytes(self) -> int:
        """What is held back because it may still become a character."""
        return len(self._pending)

    def push(self, token_ids: Iterable[TokenId]) -> str:
        """Take more tokens and return the characters that are whole now; ids without a token add nothing."""
        pieces = self._pieces
        try:
            data = self._pending + b"".join([pieces[token_id] for token_id in token_ids])
        except IndexError:
            data = self._pending + b"".join([pieces[token_id] for token_id in token_ids if token_id < len(pieces)])
        self._num_read_bytes += len(data) - len(self._pending)
        if self._drops_space and data:
            self._drops_space = False
            data = data.removeprefix(b" ")
        text, num_read = utf_8_decode(data, "replace", False)
        self._pending = data[num_read:]
        return text
