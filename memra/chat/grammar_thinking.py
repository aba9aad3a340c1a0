"""A grammar that waits until the model has thought: thoughts are free, the answer after them is bound.

Knows the marks that stand around thoughts and finds out whether an answer begins inside of them; refuses to know
grammars themselves. Fulfils `memra.messages.constraint.TokenConstraint`. Made by `memra.chat.chat_format`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from memra.chat.grammar_matcher import GrammarMatcher
from memra.chat.reasoning import THOUGHT_MARKERS
from memra.chat.tokenizer import Tokenizer
from memra.types import TokenId


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """What stands around a model's thoughts.

    Attributes:
        opening: begins them, in the prompt's last words or as the answer's first token.
        closing: ends them; the answer proper follows.
    """

    opening: str
    closing: str


_MARKS = (
    *(ThoughtMarks(markers.opens, markers.closes) for markers in THOUGHT_MARKERS),
    ThoughtMarks("<|channel>", "<channel|>"),
)
"""The reader's, and Gemma 4's channel before it is named: as a token it opens an answer's thoughts."""
_CHANNEL = "<|channel|>"
_HARMONY = ThoughtMarks("<|start|>assistant", f"{_CHANNEL}final<|message|>")
"""Every answer in this format begins with its frame, thoughts or not; the answer proper stands in the last channel."""

_TAIL_TOKENS = 32
"""Tokens at the end of a prompt in which an opening mark is looked for; the longest has a few."""

_NEWLINES = (b"\n", b"\n\n")
"""What models write between thoughts and answer; no reader shows it."""


class Phase(Enum):
    """How far an answer has come."""

    MAY_THINK = "may_think"
    """At its first token, which may open thoughts."""
    THINKING = "thinking"
    GAP = "gap"
    """Right after the closing mark."""
    ANSWERING = "answering"


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How one answer's thoughts begin.

    Attributes:
        marks: around them.
        phase: at the answer's first token.
    """

    marks: ThoughtMarks
    phase: Phase


class ThoughtTokens:
    """What following thoughts asks of a vocabulary; looked up once, and then shared by any number of threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Take a model's tokenizer; costs nothing."""
        self._tokenizer = tokenizer

    def find(self, prompt_ids: tuple[TokenId, ...], *, template: str) -> Thoughts | None:
        """Say whether and how the answer to a rendered chat begins with thoughts; None where it cannot.

        Args:
            prompt_ids: the whole prompt.
            template: source of the chat template; a model whose template does not name a mark does not use it.
        """
        tail = self._tokenizer.decode(prompt_ids[-_TAIL_TOKENS:], show_control=True).rstrip()
        if tail.endswith(_HARMONY.opening) and _CHANNEL in template:
            return Thoughts(_HARMONY, Phase.THINKING)
        for marks in _MARKS:
            if tail.endswith(marks.closing):
                return None
            if tail.endswith(marks.opening):
                return Thoughts(marks, Phase.THINKING)
        for marks in _MARKS:
            if marks.opening in template and marks in self.opening_ids:
                return Thoughts(marks, Phase.MAY_THINK)
        return None

    def text_of(self, token_id: TokenId) -> bytes:
        """Return what a token adds, control tokens by their names: closing marks may be such."""
        return self._tokenizer.token_bytes(token_id, show_control=True)

    @cached_property
    def opening_ids(self) -> Mapping[ThoughtMarks, TokenId]:
        """The opening marks that are one token."""
        found = {marks: self._tokenizer.find_token(marks.opening) for marks in _MARKS}
        return {marks: token_id for marks, token_id in found.items() if token_id is not None}

    @cached_property
    def free(self) -> NDArray[np.uint32]:
        """The mask within thoughts: everything but what ends the turn, since the answer is still to come."""
        eos_ids = self._tokenizer.eos_ids
        return self.mask(token_id for token_id in range(self._tokenizer.vocab_size) if token_id not in eos_ids)

    @cached_property
    def gap(self) -> NDArray[np.uint32]:
        """The mask of what may stand between thoughts and answer."""
        return self.mask(token_id for token_id, piece in enumerate(self._tokenizer.pieces) if piece in _NEWLINES)

    def mask(self, token_ids: Iterable[TokenId]) -> NDArray[np.uint32]:
        """Return the mask `[ceil(V / 32)]` that allows these tokens."""
        is_allowed = np.zeros(-(-self._tokenizer.vocab_size // 32) * 32, bool)
        is_allowed[list(token_ids)] = True
        return np.packbits(is_allowed, bitorder="little").view("<u4").astype(np.uint32)


class ThinkingFirst:
    """Thoughts without rules, then a grammar; one thread at a time."""

    def __init__(self, grammar: GrammarMatcher, thoughts: Thoughts, tokens: ThoughtTokens) -> None:
        """Begin an answer.

        Args:
            grammar: at its start, and nobody else's.
            thoughts: how they begin.
            tokens: of the model that answers.
        """
        self._grammar = grammar
        self._tokens = tokens
        self._phase = thoughts.phase
        self._closing = thoughts.marks.closing.encode()
        self._opening_id = tokens.opening_ids.get(thoughts.marks)
        self._tail = b""

    def allowed(self) -> NDArray[np.uint32]:
        """Return the tokens that may come next; see `TokenConstraint`."""
        match self._phase:
            case Phase.MAY_THINK:
                opening_ids = () if self._opening_id is None else (self._opening_id,)
                return self._grammar.allowed() | self._tokens.mask(opening_ids)
            case Phase.THINKING:
                return self._tokens.free
            case Phase.GAP:
                return self._grammar.allowed() | self._tokens.gap
            case Phase.ANSWERING:
                return self._grammar.allowed()

    def accept(self, token_id: TokenId) -> bool:
        """Take the next token; see `TokenConstraint`."""
        phase, self._phase = self._phase, Phase.ANSWERING
        if phase is Phase.THINKING or (phase is Phase.MAY_THINK and token_id == self._opening_id):
            return self._think(token_id)
        if phase is Phase.GAP and self._tokens.text_of(token_id) in _NEWLINES:
            return True
        return self._grammar.accept(token_id)

    def copy(self) -> "ThinkingFirst":
        """Return one in the same state that goes its own way."""
        twin = object.__new__(ThinkingFirst)
        twin.__dict__.update(self.__dict__)
        twin._grammar = self._grammar.copy()
        return twin

    def _think(self, token_id: TokenId) -> bool:
        """Go on thinking until the closing mark is there; what follows it in the same token begins the answer."""
        before, found, after = (self._tail + self._tokens.text_of(token_id)).partition(self._closing)
        if not found:
            self._tail = before[-len(self._closing) :]
            self._phase = Phase.THINKING
            return True
        self._tail = b""
        answer = after.lstrip(b"\n")
        if answer:
            return self._grammar.accept_text(answer)
        self._phase = Phase.ANSWERING if after else Phase.GAP
        return True
