"""One answer's grammar, followed token by token.

Knows llguidance's matcher and what its states mean; refuses to know how a grammar was written. Fulfils
`memra.messages.constraint.TokenConstraint`. Made by templating, copied and used by the worker's thread.
"""

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from memra.errors import GrammarDeadEndError
from memra.types import TokenId


class GrammarMatcher:
    """A grammar and how much of it the answer has matched; one thread at a time."""

    def __init__(self, matcher: LLMatcher, tokens: LLTokenizer, *, vocab_size: int) -> None:
        """Take a matcher that nobody else uses.

        Args:
            matcher: without an error.
            tokens: with which it was made.
            vocab_size: of the tokenizer.
        """
        self._matcher = matcher
        self._tokens = tokens
        self._vocab_size = vocab_size

    def allowed(self) -> NDArray[np.uint32]:
        """Return the tokens that may come next; see `TokenConstraint`. A complete answer may only end."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: -(-self._vocab_size // 32)]
        self._check()
        if not words.any():
            raise GrammarDeadEndError("the grammar allows no token here")
        return words

    def accept(self, token_id: TokenId) -> bool:
        """Take the next token; see `TokenConstraint`."""
        self._matcher.consume_token(token_id)
        self._check()
        return not self._matcher.is_stopped()

    def accept_text(self, text: bytes) -> bool:
        """Take text that came as part of a token; returns and raises as `accept`."""
        self._matcher.consume_tokens(self._tokens.tokenize_bytes(text))
        self._check()
        return not self._matcher.is_stopped()

    def copy(self) -> "GrammarMatcher":
        """Return one in the same state that goes its own way.

        The two share what is worked out about the grammar's words, and with it the bounds on that work: what has gone
        past them has done so for all copies. Answers of different requests have grammars compiled apart.
        """
        return GrammarMatcher(self._matcher.deep_copy(), self._tokens, vocab_size=self._vocab_size)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarDeadEndError(f"the grammar cannot go on: {self._matcher.get_error().splitlines()[0]}")
