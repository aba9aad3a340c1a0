"""What an answer must look like, as clients of vLLM and of llama-server spell it.

`guided_*` and `structured_outputs` are vLLM's older and newer fields, `json_schema` is llama-server's; each says what a
field of OpenAI's or our own says. A client that sends one to a server that passes it over gets free text and takes it
for bound. Refuses to know whether a schema or a grammar is valid. Called by `memra.http.wire.grammar_fields`.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from memra.http.wire.nesting import check_text_depth
from memra.http.wire.refusal import field_of, refuse
from memra.messages.constraint import AnswerGrammar, GrammarKind

ANY_OBJECT = '{"type":"object"}'


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """The object `structured_outputs`; one of its fields is sent."""

    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class GuidedFields(msgspec.Struct, kw_only=True):
    """Other servers' names; an explicit null says nothing."""

    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    json_schema: Any = None


def read_guided(fields: GuidedFields) -> Iterator[AnswerGrammar]:
    """Tell each thing that the fields ask for.

    Raises:
        InvalidRequestError: a field is malformed.
    """
    outputs = fields.structured_outputs or StructuredOutputs()
    for place, schema in (
        ("guided_json", fields.guided_json),
        ("json_schema", fields.json_schema),
        ("structured_outputs.json", outputs.json),
        ("structured_outputs.json_object", ANY_OBJECT if outputs.json_object else None),
    ):
        if schema is not None:
            yield AnswerGrammar(GrammarKind.JSON_SCHEMA, _schema(place, schema), field_of(place))
    for place, expression in (("guided_regex", fields.guided_regex), ("structured_outputs.regex", outputs.regex)):
        if expression is not None:
            yield AnswerGrammar(GrammarKind.REGEX, expression, field_of(place))
    for place, choices in (("guided_choice", fields.guided_choice), ("structured_outputs.choice", outputs.choice)):
        if choices is not None:
            yield AnswerGrammar(GrammarKind.RULES, _one_of(place, choices), field_of(place))
    for place, rules in (("guided_grammar", fields.guided_grammar), ("structured_outputs.grammar", outputs.grammar)):
        if rules is not None:
            yield AnswerGrammar(GrammarKind.RULES, rules, field_of(place))


def _schema(place: str, schema: Any) -> str:
    """Return the schema's JSON text, keys in the client's order; it may be sent as text."""
    if isinstance(schema, str):
        check_text_depth(schema, param=field_of(place))
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError):
            schema = None
    if not isinstance(schema, dict):
        refuse(place, "a JSON schema: an object, or the text of one")
    return msgspec.json.encode(schema).decode()


def _one_of(place: str, choices: list[str]) -> str:
    """Return Lark that matches the choices, whose strings are JSON's."""
    if not all(choices) or not choices:
        refuse(place, "a list of texts that are not empty")
    return "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
