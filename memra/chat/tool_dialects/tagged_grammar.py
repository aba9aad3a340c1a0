"""Grammars of forced calls between tags.

Trade: `tagged_calls.Tags` as Lark. Every required parameter comes once and the others at most once, all in the order in
which they were declared. Values that can only be strings are free text up to their closing tag; all others are JSON of
their schema. References out of a parameter's schema are taken along.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.declared_tools import types_of
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_of, quote, several, with_definitions
from memra.chat.tool_dialects.tagged_calls import Tags


def tagged_calls(
    tools: Sequence[Mapping[str, Any]],
    *,
    names: Sequence[str],
    tags: Tags,
    at_least_one: bool,
) -> str:
    """Lark for calls between tags.

    Args:
        tools: all that are declared.
        names: those that may be called.
        tags: of the dialect.
        at_least_one: as in `ToolDialect.grammar`.
    """
    grammar = GrammarText(tools)
    choices = [_call(grammar, name, index, tags) for index, name in enumerate(names)]
    call = f"{grammar.marker(tags.lead)} {grammar.rule('call', ' | '.join(choices))} {grammar.marker(tags.trail)}"
    block = grammar.rule("block", _within(grammar, tags, call) if tags.has_outer_each else call)
    calls = several(block, between=quote("\n"), at_least_one=at_least_one)
    return grammar.text(calls if tags.has_outer_each else _within(grammar, tags, calls))


def _within(grammar: GrammarText, tags: Tags, body: str) -> str:
    opening, closing = tags.outer
    return f'{grammar.marker(opening)} "\\n" {body} "\\n" {grammar.marker(closing)}' if opening else body


def _call(grammar: GrammarText, name: str, index: int, tags: Tags) -> str:
    schema, required = grammar.schema(name), grammar.required(name)
    parts = [grammar.marker(tags.begin), quote(name), grammar.marker(tags.after_name), '"\\n"']
    for position, (key, wanted) in enumerate(grammar.properties(name).items()):
        rule = grammar.rule(
            f"parameter_{index}_{position}", _parameter(grammar, tags, key, with_definitions(wanted, schema))
        )
        parts.append(rule if key in required else f"{rule}?")
    return " ".join([*parts, grammar.marker(tags.end)])


def _parameter(grammar: GrammarText, tags: Tags, key: str, schema: Mapping[str, Any]) -> str:
    is_string = types_of(schema) == {"string"}
    line_break = '"\\n"' if tags.has_line_breaks else '""'
    after_key = next(literal for literal, says in tags.after_keys if says in (None, is_string))
    before = [grammar.marker(tags.before_key), quote(key), grammar.marker(after_key), grammar.marker(tags.before_value)]
    if not is_string:
        value = json_of(schema)
        closing = [line_break, grammar.marker(tags.closing(key))]
    elif isinstance(choices := schema.get("enum"), list):
        value = "(" + " | ".join(quote(choice) for choice in choices) + ")"
        closing = [line_break, grammar.marker(tags.closing(key))]
    else:
        # The line break before the tag is left to the model: a reader ends the value at the bare tag as well.
        value, closing = grammar.text_until(tags.closing(key)), []
    return " ".join([*before, line_break, value, *closing, '"\\n"'])
