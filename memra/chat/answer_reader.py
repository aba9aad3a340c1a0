"""The reader of one answer: tokens go in; the text that a client may see, the model's thoughts and its calls come out.

Puts a detokenizer, a splitter of thoughts, a reader of calls and stop strings together; refuses to know how an answer
was asked for and where it goes. Made by templating, one for each answer, and owned by the request's task.

Stop strings are looked for in the text alone. Thoughts repeat the question and its words, so a stop string that ended
them would leave an answer without text, and one inside a call's arguments would leave half a call; a call that begins
ends the stretch of text before it, so that no stop string is found across a call.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from memra.chat.call_reader import CallReader
from memra.chat.detokenizer import Detokenizer
from memra.chat.reasoning import Splitter
from memra.chat.spans import Span
from memra.chat.stop_strings import StopStrings
from memra.chat.tokenizer import Tokenizer
from memra.messages.generation import EndRules, ToolCallDelta
from memra.messages.prompt import AnswerPiece
from memra.types import TokenId

_NOTHING = AnswerPiece()
_PLAIN_END = EndRules()


class TextAnswerReader:
    """Reads one answer as plain text; fulfils `memra.messages.prompt.AnswerReader`."""

    has_calls = False
    """Plain text calls nothing."""

    is_thinking = False
    """Nor is any of it a thought."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prompt_ids: tuple[TokenId, ...] = (),
        stop_strings: tuple[str, ...] = (),
        ends: EndRules = _PLAIN_END,
    ) -> None:
        """Begin an answer.

        Args:
            tokenizer: of the model that answers.
            prompt_ids: the whole prompt; its last token decides whether the answer begins with a space of its own.
            stop_strings: the text ends before the earliest of these.
            ends: when they count, and what of the end shows.

        Raises:
            InvalidRequestError: the stop strings are too many, or one is empty.
        """
        self._tokenizer = tokenizer
        pieces = tokenizer.named_pieces if ends.shows_control else tokenizer.pieces
        self._words = begin_words(tokenizer, pieces, prompt_ids=prompt_ids)
        self._stops = StopStrings(stop_strings, is_shown=ends.shows_stop_string)
        self._num_free_tokens = ends.min_new_tokens

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found: nothing more will be shown, and generation may end."""
        return self._stops.is_stopped

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found, or None."""
        return self._stops.found

    @property
    def num_read_bytes(self) -> int:
        """What all tokens so far add to a text."""
        return self._words.num_read_bytes

    @property
    def num_held_bytes(self) -> int:
        """What of that, at its end, is not shown yet, or never will be because a stop string begins there."""
        return self._words.num_held_bytes + self._stops.num_held_bytes

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return what a token stands for by itself, a control token by its name; changes nothing."""
        return self._tokenizer.token_bytes(token_id, show_control=True)

    def read(self, token_ids: tuple[TokenId, ...]) -> AnswerPiece:
        """Take more tokens and return the text that is certain now: whole characters, no part of a stop string."""
        text = ""
        if self._num_free_tokens:
            free, token_ids = token_ids[: self._num_free_tokens], token_ids[self._num_free_tokens :]
            self._num_free_tokens -= len(free)
            text = self._words.push(free)
        text += self._stops.push(self._words.push(token_ids))
        return AnswerPiece(text) if text else _NOTHING

    def finish(self) -> AnswerPiece:
        """Return what was held back; call once, after the last token. Half a character is no text."""
        return AnswerPiece(self._stops.flush())


class ChatAnswerReader:
    """Reads one answer as thoughts, text and calls; fulfils `memra.messages.prompt.AnswerReader`."""

    def __init__(  # noqa: PLR0913  (each reads another part of the answer)
        self,
        words: Detokenizer,
        spell: Callable[[TokenId], bytes],
        *,
        splitter: Splitter | None,
        calls: CallReader | None,
        stop_strings: tuple[str, ...] = (),
        ends: EndRules = _PLAIN_END,
    ) -> None:
        """Begin an answer.

        Args:
            words: shows the tokens that the splitter and the calls need to see.
            spell: gives a token's bytes by itself.
            splitter: fresh; None for a model that marks no thoughts.
            calls: fresh; None where no tool may be called.
            stop_strings: the text ends before the earliest of these.
            ends: when they count, and whether the one that is found shows.

        Raises:
            InvalidRequestError: the stop strings are too many, or one is empty.
        """
        self._words = words
        self._spell = spell
        self._num_open_bytes = 0
        self._splitter = splitter
        self._calls = calls
        self._stops = StopStrings(stop_strings, is_shown=ends.shows_stop_string)
        self._num_free_tokens = ends.min_new_tokens

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more will be shown: a stop string was found, or the only call that is wanted was read."""
        return self._stops.is_stopped or (self._calls is not None and self._calls.is_over)

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found, or None."""
        return self._stops.found

    @property
    def num_read_bytes(self) -> int:
        """What all tokens so far add to a text, the markers among them."""
        return self._words.num_read_bytes

    @property
    def num_held_bytes(self) -> int:
        """What of that, at its end, is not told yet or never will be: at most all since something was told."""
        return max(self._num_open_bytes, self._words.num_held_bytes + self._stops.num_held_bytes)

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return what a token stands for by itself, a control token by its name; changes nothing."""
        return self._spell(token_id)

    @property
    def is_thinking(self) -> bool:
        """Whether what was read so far ends inside a thought."""
        return self._splitter is not None and self._splitter.is_thinking

    @property
    def has_calls(self) -> bool:
        """Whether a complete call was read."""
        return self._calls is not None and self._calls.has_calls

    def read(self, token_ids: tuple[TokenId, ...]) -> AnswerPiece:
        """Take more tokens and return what is certain now: whole characters, no part of a marker or a stop string."""
        gathered = _Gathered()
        if self._num_free_tokens:
            free, token_ids = token_ids[: self._num_free_tokens], token_ids[self._num_free_tokens :]
            self._num_free_tokens -= len(free)
            self._stops.is_on = False
            self._read(free, gathered)
            self._stops.is_on = True
        self._read(token_ids, gathered)
        piece = gathered.piece()
        if piece.text or piece.reasoning or piece.tool_calls:
            self._num_open_bytes = 0
        return piece

    def _read(self, token_ids: tuple[TokenId, ...], gathered: "_Gathered") -> None:
        num_read_before = self._words.num_read_bytes
        text = self._words.push(token_ids)
        self._num_open_bytes += self._words.num_read_bytes - num_read_before
        if text and not self.is_stopped:
            self._sort([Span(text)] if self._splitter is None else self._splitter.push(text), gathered)

    def finish(self) -> AnswerPiece:
        """Return what was held back; call once, after the last token. Half a character is no text."""
        if self.is_stopped:
            return _NOTHING
        gathered = _Gathered()
        if self._splitter is not None:
            self._sort(self._splitter.flush(), gathered)
        if self._calls is not None and not self.is_stopped:
            self._show(self._calls.finish(), gathered)
        gathered.text.append(self._stops.flush())
        return gathered.piece()

    def _sort(self, spans: list[Span], gathered: "_Gathered") -> None:
        for span in spans:
            if self.is_stopped:
                return
            if span.is_thought:
                gathered.reasoning.append(span.text)
            elif self._calls is None:
                gathered.text.append(self._stops.push(span.text))
            else:
                self._show(self._calls.feed(span.text), gathered)

    def _show(self, told: Iterable[str | ToolCallDelta], gathered: "_Gathered") -> None:
        for more in told:
            if self._stops.is_stopped:
                return
            if isinstance(more, str):
                gathered.text.append(self._stops.push(more))
                continue
            if more.name is not None:
                gathered.text.append(self._stops.flush())
                if self._stops.is_stopped:
                    return
            gathered.calls.append(more)


@dataclass(slots=True)
class _Gathered:
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)

    def piece(self) -> AnswerPiece:
        return AnswerPiece("".join(self.text), "".join(self.reasoning), tuple(self.calls))


def begin_words(tokenizer: Tokenizer, pieces: tuple[bytes, ...], *, prompt_ids: tuple[TokenId, ...]) -> Detokenizer:
    """Return the detokenizer of the answer to a prompt.

    Args:
        tokenizer: of the model that answers.
        pieces: its pieces, or those in which further tokens show.
        prompt_ids: the whole prompt.
    """
    begins_text = not prompt_ids or prompt_ids[-1] in tokenizer.control_ids
    return Detokenizer(pieces, drop_first_space=tokenizer.adds_space_prefix and begins_text)
