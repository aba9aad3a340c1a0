"""Grammars of forced calls in Gemma 4's notation.

Trade: the notation as Lark. Parameters come in the order in which they were declared, the required ones always. Strings
are free text, numbers and names are JSON of their schema; for objects and arrays only the notation is held, not what
the schema says about their insides.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.declared_tools import types_of
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_of, listed, quote, several, with_definitions

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_PLAIN = frozenset({"integer", "number", "boolean", "null"})


def gemma_calls(tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
    """Lark for calls one behind the other."""
    grammar = GrammarText(tools)
    call = grammar.rule("call", " | ".join(_call(grammar, name, index) for index, name in enumerate(names)))
    return grammar.text(several(call, between='""', at_least_one=at_least_one))


def _call(grammar: GrammarText, name: str, index: int) -> str:
    schema, required = grammar.schema(name), grammar.required(name)
    rules = {
        grammar.rule(
            f"pair_{index}_{position}", f"{quote(f'{key}:')} {_value(grammar, with_definitions(wanted, schema))}"
        ): key in required
        for position, (key, wanted) in enumerate(grammar.properties(name).items())
    }
    body = listed(grammar, rules, between=",", suffix=str(index))
    return f'{grammar.marker(OPEN)} {quote(f"call:{name}{{")} {body} "}}" {grammar.marker(CLOSE)}'


def _value(grammar: GrammarText, schema: Mapping[str, Any]) -> str:
    types = types_of(schema)
    if types == {"string"} and isinstance(choices := schema.get("enum"), list):
        chosen = " | ".join(quote(str(choice)) for choice in choices)
        return f"{grammar.marker(QUOTE)} ({chosen}) {grammar.marker(QUOTE)}"
    if types == {"string"}:
        return _string(grammar)
    if types and types <= _PLAIN:
        return json_of(schema)
    return {frozenset({"array"}): _list(grammar), frozenset({"object"}): _object(grammar)}.get(types, _any(grammar))


def _string(grammar: GrammarText) -> str:
    return f"{grammar.marker(QUOTE)} {grammar.text_until(QUOTE)}"


def _list(grammar: GrammarText) -> str:
    value = _any(grammar)
    return grammar.rule_once("a_list", f'"[" ({value} ("," {value})*)? "]"')


def _object(grammar: GrammarText) -> str:
    member = f'/[A-Za-z_][A-Za-z0-9_]*/ ":" {_any(grammar)}'
    return grammar.rule_once("an_object", f'"{{" ({member} ("," {member})*)? "}}"')


def _any(grammar: GrammarText) -> str:
    if not grammar.has_rule("a_value"):
        plain = '"true" | "false" | "null" | /-?(0|[1-9][0-9]*)(\\.[0-9]+)?/'
        grammar.rule_once("a_value", f"{plain} | {_string(grammar)} | a_list | an_object")
        _list(grammar)
        _object(grammar)
    return "a_value"
