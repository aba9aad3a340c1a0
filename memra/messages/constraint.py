"""What an answer must look like: asked for in words, and as the mask over the next token that comes of them.

The words go from the front door to templating, which makes the mask's owner; that goes to the worker with the prompt.
This module refuses to know how either is computed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, Self

from memra.types import TokenId

if TYPE_CHECKING:  # plugins import these messages, for every command line: numpy alone would take a tenth of a second
    import numpy as np
    from numpy.typing import NDArray


class GrammarKind(Enum):
    """The language that a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    RULES = "rules"
    """Lark as llguidance reads it, or GBNF, which is told by its `::=`."""
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class AnswerGrammar:
    """What the whole answer must match.

    Attributes:
        kind: of the source.
        source: as the client wrote it; of a schema, its JSON text.
        param: the request field that it came in, for errors.
    """

    kind: GrammarKind
    source: str
    param: str

    def __repr__(self) -> str:
        """The length instead of the words."""
        return f"AnswerGrammar({self.kind.value}, num_chars={len(self.source)}, param={self.param!r})"


class TokenConstraint(Protocol):
    """What one answer may go on with. One sequence owns it; another one takes a `copy`."""

    def allowed(self) -> "NDArray[np.uint32]":
        """Return the tokens that may come next.

        Returns:
            uint32 `[ceil(V / 32)]` for the V tokens of the tokenizer: token `i` is allowed where bit `i % 32` of word
            `i // 32` is set; at least one is. Read only, and good until the next call.

        Raises:
            GrammarDeadEndError: none may, or finding out costs too much.
        """
        ...

    def accept(self, token_id: TokenId) -> bool:
        """Take the next token of the answer, which is none that ends the sequence.

        Returns:
            Whether more may follow; False once the answer is complete.

        Raises:
            GrammarDeadEndError: the token is not allowed.
        """
        ...

    def copy(self) -> Self:
        """Return one in the same state that goes its own way."""
        ...
