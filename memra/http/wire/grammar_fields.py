"""The fields that say what an answer must look like: `response_format`, `grammar` and `regex`; see `guided_fields` too.

Refuses to know whether a schema or a grammar is valid: templating finds that out, before any header is sent. Called by
`memra.http.wire.chat_request` and `completion_request`.
"""

from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.wire.guided_fields import ANY_OBJECT, GuidedFields, read_guided
from memra.http.wire.refusal import refuse
from memra.messages.constraint import AnswerGrammar, GrammarKind

_SCHEMA_LABELS = frozenset({"name", "description", "strict"})
"""Beside a schema; without effect, since every schema is held to the letter."""


class GrammarFields(GuidedFields, kw_only=True):  # msgspec's structs cannot have two bases with fields
    """What an answer must match; at most one of them, and an explicit null says nothing."""

    response_format: Any = None
    grammar: str | None = None
    regex: str | None = None


def read_grammar(fields: GrammarFields) -> AnswerGrammar | None:
    """Return what the answer must match, or None where the request does not say.

    Raises:
        InvalidRequestError: a field is malformed, or two of them ask for something.
    """
    grammars = [
        _read_format(fields.response_format),
        None if fields.grammar is None else AnswerGrammar(GrammarKind.RULES, fields.grammar, "grammar"),
        None if fields.regex is None else AnswerGrammar(GrammarKind.REGEX, fields.regex, "regex"),
        *read_guided(fields),
    ]
    asked = [grammar for grammar in grammars if grammar is not None]
    if len(asked) > 1:
        first, second = asked[0].param, asked[1].param
        raise InvalidRequestError(f"`{second}` cannot be combined with `{first}`; send one of them.", param=second)
    return asked[0] if asked else None


def _read_format(value: Any) -> AnswerGrammar | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        refuse("response_format", 'an object such as {"type": "json_object"}')
    kind = value.get("type")
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema"):
        refuse("response_format.type", "one of text, json_object, json_schema")
    schema = ANY_OBJECT if kind == "json_object" else _read_schema(value.get("json_schema"))
    return AnswerGrammar(GrammarKind.JSON_SCHEMA, schema, "response_format")


def _read_schema(wrapped: Any) -> str:
    """Return the schema's JSON text, keys in the client's order; it may stand in `schema` or in its place."""
    if not isinstance(wrapped, dict):
        refuse("response_format.json_schema", "an object that holds a `schema`")
    schema = wrapped.get("schema") if "schema" in wrapped else wrapped
    if not isinstance(schema, dict) or (schema is wrapped and not wrapped.keys() - _SCHEMA_LABELS):
        refuse("response_format.json_schema.schema", "a JSON schema: an object")
    return msgspec.json.encode(schema).decode()
