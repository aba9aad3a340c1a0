"""A client's grammar in llguidance's words, and llguidance's objections in the client's.

Knows the languages that grammars come in; refuses to know tokens. Called by `memra.chat.grammar`.
"""

import json
import re
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from memra.errors import InvalidRequestError
from memra.messages.constraint import AnswerGrammar, GrammarKind

_GBNF_RULE = re.compile(r"^\s*[A-Za-z][\w-]*\s*::=", re.MULTILINE)

_JSON_SPACE = r"\x20|\r?\n[\x20\t]{0,40}"
"""Between the parts of a JSON text: one space, or a new line and its indentation, as JSON is printed. JSON allows any
number, and small models that have begun with them write nothing else any more."""

_MAX_ERROR_CHARS = 300

_UNKNOWN_KEYWORDS = re.compile(r'Unimplemented keys: \["([^"]*)"')
_KEYWORDS_BY_WORDS = (
    ("regex", "pattern"),
    ("Invalid type", "type"),
    ("Unknown format", "format"),
    ("Pointer ", "$ref"),
    ("Resource ", "$ref"),
    ("oneOf", "oneOf"),
)
"""What llguidance says, and the keyword that it does not name; its other objections name theirs."""


def translate(grammar: AnswerGrammar) -> str:
    """Return the grammar as llguidance's compiler takes it; whether it means anything is found out there.

    Raises:
        InvalidRequestError: GBNF that cannot be read, or a schema that is no object.
    """
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return _read_schema(grammar)
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.source)
        case GrammarKind.RULES:
            is_gbnf = _GBNF_RULE.search(grammar.source) is not None
            return LLMatcher.grammar_from_lark(_read_gbnf(grammar) if is_gbnf else grammar.source)


def either(answer: str, calls: str) -> str:
    """Return the grammar of an answer that is one thing or calls of tools, of two as `translate` returns them.

    Each keeps its own names: llguidance looks a grammar's rules up in that grammar alone.
    """
    named = [{**_unwrap(grammar), "name": name} for name, grammar in (("answer", answer), ("calls", calls))]
    return json.dumps({"grammars": [{"lark_grammar": "start: @answer | @calls"}, *named]})


def _unwrap(grammar: str) -> dict[str, Any]:
    """The one grammar of a list, or of Lark, which llguidance leaves as it is."""
    if not grammar.startswith("{"):
        return {"lark_grammar": grammar}
    first: dict[str, Any] = json.loads(grammar)["grammars"][0]
    return first


def refusal(grammar: AnswerGrammar, objection: str) -> InvalidRequestError:
    """Return the error for a grammar to which the compiler objects."""
    param = grammar.param
    words = _first_words(objection)
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        keyword = _keyword(objection)
        place = "" if keyword is None else f" at {keyword!r}"
        words = f"the schema in `{param}` cannot be held to{place}: {words}"
    else:
        words = f"the grammar in `{param}` is not valid: {words}"
    return InvalidRequestError(f"{words.rstrip('.')}.", param=param)


def _read_schema(grammar: AnswerGrammar) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(grammar.source, defaults={"whitespace_pattern": _JSON_SPACE})
    except (ValueError, TypeError) as error:
        raise refusal(grammar, str(error)) from None


def _read_gbnf(grammar: AnswerGrammar) -> str:
    try:
        return gbnf_to_lark(grammar.source)
    except RecursionError:
        raise refusal(grammar, "its rules are nested too deeply") from None
    except Exception as error:  # noqa: BLE001  (the reader raises errors of many kinds for what it cannot read)
        raise refusal(grammar, f"as GBNF: {error}") from None


def _keyword(objection: str) -> str | None:
    unknown = _UNKNOWN_KEYWORDS.search(objection)
    if unknown is not None:
        return unknown.group(1)
    return next((keyword for words, keyword in _KEYWORDS_BY_WORDS if words in objection), None)


def _first_words(objection: str) -> str:
    """One line: pictures of the source and marks of the compiler's own are left out."""
    lines = [line.strip() for line in objection.splitlines()]
    words = " ".join(line for line in lines if line and line != "<non-verbose/>" and set(line) != {"^"})
    return words[:_MAX_ERROR_CHARS]
