"""The dialect of GigaChat 3: one JSON object behind `<|function_call|>`, or in the first version behind a role's name.

Source: the models' chat templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_object_calls, several
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_TOKEN, _ROLE = "<|function_call|>", "function call<|role_sep|>\n"


class GigaChatDialect:
    """Calls as objects, each behind a marker; both versions are read."""

    def __init__(self, *, is_role: bool) -> None:
        """Write forced calls behind the role's name, or behind the token."""
        self.name = "gigachat_role" if is_role else "gigachat"
        self.tokens = ("<|role_sep|>",) if is_role else (_TOKEN,)
        self._opening = _ROLE if is_role else _TOKEN
        self._signs = tuple(_ROLE.strip().split("<", 1)) if is_role else (_TOKEN,)

    def knows(self, template: str) -> bool:
        """By the token, or by the role's name and the token behind it, which the template puts together."""
        return all(sign in template for sign in self._signs)

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_TOKEN, _ROLE), read_block=reads_calls(), openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Objects, each behind the marker."""

        def wrap(grammar: GrammarText, call: str) -> str:
            block = grammar.rule("block", f"{grammar.marker(self._opening)} {call}")
            return several(block, between='"\\n"', at_least_one=at_least_one)

        return json_object_calls(tools, names=names, wrap=wrap)
