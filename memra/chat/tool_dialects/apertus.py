"""The dialect of Apertus: `<|tools_prefix|>[{"NAME": {...}}]<|tools_suffix|>`, where a call's only key is its name.

Source: the model's chat template.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.json_text import pass_arguments, read_string
from memra.chat.tool_dialects.lark_grammar import GrammarText, quote, several
from memra.chat.tool_dialects.reading import Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_OPEN, _CLOSE = "<|tools_prefix|>", "<|tools_suffix|>"


class ApertusDialect:
    """Calls as an array of objects with one member."""

    name = "apertus"
    tokens = (_OPEN, _CLOSE)

    def knows(self, template: str) -> bool:
        """By the opening token."""
        return _OPEN in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_OPEN,), read_block=_read_block, openings={"{": opens_bare(_CLOSE)}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """One array."""
        grammar = GrammarText(tools)
        choices = [
            f'{quote(f"{{{json.dumps(name)}: ")} {grammar.arguments(name, index)} "}}"'
            for index, name in enumerate(names)
        ]
        calls = several(grammar.rule("call", " | ".join(choices)), between='", "', at_least_one=at_least_one)
        return grammar.text(f'{grammar.marker(_OPEN)} "[" {calls} "]" {grammar.marker(_CLOSE)}')


def _read_block(reading: Reading, _marker: str) -> Script[None]:
    yield from reading.skip_space()
    yield from reading.expect("[")
    yield from reading.skip_space()
    yield from _read_call(reading)
    yield from reading.skip_space()
    while (yield from reading.accept(",")):
        yield from reading.skip_space()
        yield from _read_call(reading)
        yield from reading.skip_space()
    yield from reading.close(("]",))
    yield from reading.close((_CLOSE,))


def _read_call(reading: Reading) -> Script[None]:
    yield from reading.expect("{")
    yield from reading.skip_space()
    reading.begin((yield from read_string(reading)))
    yield from reading.skip_space()
    yield from reading.expect(":")
    yield from reading.skip_space()
    yield from pass_arguments(reading, reading.argue)
    yield from reading.skip_space()
    yield from reading.expect("}")
    reading.end()
