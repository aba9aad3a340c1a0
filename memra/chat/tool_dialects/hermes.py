"""The dialect of NousResearch's Hermes and of Qwen2.5: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Qwen3, SmolLM3, Granite 4, MiMo and Reka speak it as well. Several calls are several blocks, each on lines of its own.
Source: the models' chat templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_object_calls, several
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesDialect:
    """Calls as JSON between tags."""

    name = "hermes"
    tokens = (OPEN, CLOSE)

    def knows(self, template: str) -> bool:
        """By the opening tag; the XML dialects that share it come before this one."""
        return OPEN in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(OPEN,), read_block=reads_calls(CLOSE), openings={"{": opens_bare(CLOSE)}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Blocks on lines of their own."""

        def wrap(grammar: GrammarText, call: str) -> str:
            block = f'{grammar.marker(OPEN)} "\\n" {call} "\\n" {grammar.marker(CLOSE)}'
            return several(grammar.rule("block", block), between='"\\n"', at_least_one=at_least_one)

        return json_object_calls(tools, names=names, wrap=wrap)
