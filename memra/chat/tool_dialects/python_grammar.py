"""Grammars of forced calls as Python writes them.

Trade: keyword arguments as Lark: the required ones and, if the model likes, the others, in the order in which they were
declared. Values are JSON of their schema, which Python reads alike but for three names that `python_text` knows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.lark_grammar import GrammarText, json_of, listed, quote, several, with_definitions


def python_calls(
    tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], around: tuple[str, str], at_least_one: bool
) -> str:
    """Lark for a list of calls between two markers, either of which may be empty."""
    grammar = GrammarText(tools)
    call = grammar.rule("call", " | ".join(_call(grammar, name, index) for index, name in enumerate(names)))
    calls = several(call, between='", "', at_least_one=at_least_one)
    return grammar.text(f'{grammar.marker(around[0])} "[" {calls} "]" {grammar.marker(around[1])}')


def _call(grammar: GrammarText, name: str, index: int) -> str:
    schema, required = grammar.schema(name), grammar.required(name)
    rules = {
        grammar.rule(
            f"pair_{index}_{position}",
            f"{quote(f'{key}=')} {json_of(with_definitions(wanted, schema))}",
        ): key in required
        for position, (key, wanted) in enumerate(grammar.properties(name).items())
    }
    return f'{quote(name + "(")} {listed(grammar, rules, between=", ", suffix=str(index))} ")"'
