"""How one chat template's model answers: where its thoughts stand, and how it calls tools.

Found once per template, from its source and one trial rendering; nothing here goes by a model's name. A marker may be
a token that no answer shows: such a token reaches the readers as its text, and every other special token stays hidden.
Refuses to know requests beyond what one answer needs. Called by `memra.chat.chat_format`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from memra.chat.answer_reader import ChatAnswerReader, begin_words
from memra.chat.call_reader import CallReader
from memra.chat.reasoning import ThoughtStyle, find_thought_style
from memra.chat.template import ChatTemplate
from memra.chat.tokenizer import Tokenizer
from memra.chat.tool_dialects.contract import ToolDialect
from memra.chat.tool_dialects.registry import find_dialect
from memra.messages.generation import EndRules
from memra.messages.prompt import AnswerReader
from memra.types import TokenId


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """What is found out about a template; immutable.

    Attributes:
        thoughts: how thoughts are marked, or None.
        dialect: how calls are written, or None where the template has no tools.
        pieces: the bytes of every token, where the markers of thoughts show.
        tool_pieces: the same, where the markers of calls show as well.
    """

    tokenizer: Tokenizer
    thoughts: ThoughtStyle | None
    dialect: ToolDialect | None
    pieces: tuple[bytes, ...]
    tool_pieces: tuple[bytes, ...]

    @classmethod
    def find(
        cls,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        *,
        taught: ToolDialect | None = None,
        dialects: Sequence[ToolDialect] = (),
    ) -> "AnswerStyle":
        """Find out how the model of a template answers.

        Args:
            template: of the model.
            tokenizer: of the model.
            taught: the dialect that a prompt teaches where the template has no tools; None where none does.
            dialects: asked before those of the registry.
        """
        thoughts = find_thought_style(template.source)
        pieces = tokenizer.pieces
        if thoughts is not None:
            pieces = _showing(tokenizer, pieces, _hidden_in(tokenizer, thoughts.texts))
        dialect = find_dialect(template.source, further=dialects) if template.traits.supports_tools else taught
        tool_pieces = pieces
        if dialect is not None:
            tool_pieces = _showing(tokenizer, pieces, _call_markers(template, tokenizer, dialect))
        return cls(tokenizer, thoughts, dialect, pieces, tool_pieces)

    def is_thinking(self, prompt: str) -> bool:
        """Whether the text of a prompt ends inside a thought."""
        return self.thoughts is not None and self.thoughts.is_opened_by(prompt)

    def open(  # noqa: PLR0913  (each is another part of what is known of the request)
        self,
        prompt: str,
        *,
        prompt_ids: tuple[TokenId, ...],
        tools: Sequence[Mapping[str, Any]] | None,
        is_single_call: bool,
        stop_strings: tuple[str, ...],
        ends: EndRules,
        begun: str | None = None,
    ) -> AnswerReader:
        """Return a reader for one answer.

        Args:
            prompt: the text of the prompt.
            prompt_ids: its tokens.
            tools: what may be called, OpenAI-shaped; None where nothing may.
            is_single_call: the answer ends with its first call.
            stop_strings: the text ends before the earliest of these.
            ends: when they count, and what of the end shows.
            begun: the answer's first words, with which the prompt ends; None where it begins afresh.

        Raises:
            InvalidRequestError: the stop strings are too many, or one is empty.
        """
        dialect = self.dialect if tools else None
        calls = None
        if tools and dialect is not None:
            calls = CallReader(dialect.open(tools), is_single=is_single_call)
        pieces = self.pieces if calls is None else self.tool_pieces
        splitter = None
        if self.thoughts is not None:
            splitter = self.thoughts.splitter(prompt, has_tools=calls is not None, begun=begun)
        return ChatAnswerReader(
            begin_words(
                self.tokenizer,
                self.tokenizer.named_pieces if ends.shows_control else pieces,
                prompt_ids=prompt_ids,
            ),
            partial(self.tokenizer.token_bytes, show_control=True),
            splitter=splitter,
            calls=calls,
            stop_strings=stop_strings,
            ends=ends,
        )


def _hidden_in(tokenizer: Tokenizer, texts: Iterable[str]) -> set[TokenId]:
    """Return the hidden tokens that are spelled in one of these texts."""
    together = "\n".join(texts)
    return {token_id for token_id in tokenizer.control_ids if (text := tokenizer.tokens[token_id]) and text in together}


def _call_markers(template: ChatTemplate, tokenizer: Tokenizer, dialect: ToolDialect) -> set[TokenId]:
    """Return the hidden tokens of a dialect, and those that a template writes around a call and in no chat without one.

    The dialect's own count too because some templates leave earlier calls out. Tokens that end a turn are none of them:
    they end the answer.
    """
    turns = template.trial_turns()
    written = _hidden_in(tokenizer, [turns.with_call]) - _hidden_in(tokenizer, [turns.without_call])
    return (written | _named(tokenizer, dialect.tokens)) - tokenizer.eos_ids


def _named(tokenizer: Tokenizer, texts: Iterable[str]) -> set[TokenId]:
    """Return the hidden tokens that are one of these texts."""
    found = (tokenizer.find_token(text) for text in texts)
    return {token_id for token_id in found if token_id is not None and token_id in tokenizer.control_ids}


def _showing(tokenizer: Tokenizer, pieces: tuple[bytes, ...], shown: set[TokenId]) -> tuple[bytes, ...]:
    if not shown:
        return pieces
    changed = list(pieces)
    for token_id in shown:
        changed[token_id] = tokenizer.tokens[token_id].encode()
    return tuple(changed)
