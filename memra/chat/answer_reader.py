"""The reader of one answer: tokens go in, the text that a client may see comes out.

Puts a detokenizer and stop strings together; refuses to know how an answer was asked for and where its text goes.
Made by templating, one for each answer, and owned by the request's task.
"""

from memra.chat.detokenizer import Detokenizer
from memra.chat.stop_strings import StopStrings
from memra.chat.tokenizer import Tokenizer
from memra.types import TokenId


class TextAnswerReader:
    """Reads one answer as plain text; fulfils `memra.messages.prompt.AnswerReader`."""

    def __init__(
        self, tokenizer: Tokenizer, *, prompt_ids: tuple[TokenId, ...] = (), stop_strings: tuple[str, ...] = ()
    ) -> None:
        """Begin an answer.

        Args:
            tokenizer: of the model that answers.
            prompt_ids: the whole prompt; its last token decides whether the answer begins with a space of its own.
            stop_strings: the text ends before the earliest of these.

        Raises:
            InvalidRequestError: the stop strings are too many, or one is empty.
        """
        self._tokenizer = tokenizer
        begins_text = not prompt_ids or prompt_ids[-1] in tokenizer.control_ids
        self._words = Detokenizer(tokenizer.pieces, drop_first_space=tokenizer.adds_space_prefix and begins_text)
        self._stops = StopStrings(stop_strings) if stop_strings else None

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found: nothing more will be shown, and generation may end."""
        return self._stops is not None and self._stops.is_stopped

    @property
    def num_read_bytes(self) -> int:
        """What all tokens so far add to a text."""
        return self._words.num_read_bytes

    @property
    def num_held_bytes(self) -> int:
        """What of that, at its end, is not shown yet, or never will be because a stop string begins there."""
        held = self._words.num_held_bytes
        return held if self._stops is None else held + self._stops.num_held_bytes

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return what a token stands for by itself, a control token by its name; changes nothing."""
        return self._tokenizer.token_bytes(token_id, show_control=True)

    def read(self, token_ids: tuple[TokenId, ...]) -> str:
        """Take more tokens and return the text that is certain now: whole characters, no part of a stop string."""
        text = self._words.push(token_ids)
        return text if self._stops is None else self._stops.push(text)

    def finish(self) -> str:
        """Return what was held back; call once, after the last token."""
        text = self._words.flush()
        return text if self._stops is None else self._stops.push(text) + self._stops.flush()
