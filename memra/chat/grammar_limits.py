"""How large a grammar may be, before anything is made of it.

Bounds the work of the compiler and of every token's mask; refuses to know what a grammar means. Called by
`memra.chat.grammar`.
"""

import json
from typing import Any

from llguidance import LLParserLimits

from memra.errors import InvalidRequestError
from memra.messages.constraint import AnswerGrammar, GrammarKind

MAX_SOURCE_BYTES = 512 * 1024
MAX_SCHEMA_LEVELS = 64
MAX_SCHEMA_VALUES = 32 * 1024
"""Objects, lists and plain values of a schema, all levels together."""

PARSER_LIMITS = LLParserLimits(verbose_errors=False, max_lexer_states=50_000)
"""llguidance's own bounds, some 20 ms for a regular expression and 15 ms for a token's mask; but a fifth of its lexer
states, which are 100 MB for an answer and its copies."""


def check_size(grammar: AnswerGrammar) -> None:
    """Refuse a grammar that is too large.

    Raises:
        InvalidRequestError: too long, or no text; or a schema that is nested too deeply, or has too many values.
    """
    if _count_bytes(grammar) > MAX_SOURCE_BYTES:
        raise _too_large(grammar, f"is longer than {MAX_SOURCE_BYTES} bytes")
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        return
    num_values = 0
    level: list[Any] = [_read(grammar)]
    for _ in range(MAX_SCHEMA_LEVELS):
        num_values += len(level)
        if num_values > MAX_SCHEMA_VALUES:
            raise _too_large(grammar, f"has more than {MAX_SCHEMA_VALUES} values")
        level = [inner for value in level for inner in _inner_values(value)]
        if not level:
            return
    raise _too_large(grammar, f"is nested more than {MAX_SCHEMA_LEVELS} levels deep")


def _count_bytes(grammar: AnswerGrammar) -> int:
    try:
        return len(grammar.source.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(
            f"the grammar in `{grammar.param}` holds half a surrogate pair; send whole characters.", param=grammar.param
        ) from None


def _read(grammar: AnswerGrammar) -> Any:
    try:
        return json.loads(grammar.source)
    except (ValueError, RecursionError):
        raise InvalidRequestError(f"the schema in `{grammar.param}` is not JSON.", param=grammar.param) from None


def _inner_values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _too_large(grammar: AnswerGrammar, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"the grammar in `{grammar.param}` {what}; send a smaller one.", param=grammar.param)
