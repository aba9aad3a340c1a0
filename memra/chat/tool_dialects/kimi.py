"""The dialect of Kimi K2: `functions.NAME:INDEX` and the JSON of the arguments between special tokens.

Source: the model's chat template and its guide to tool calls.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.lark_grammar import GrammarText, quote, several
from memra.chat.tool_dialects.name_first_calls import read_arguments, read_section
from memra.chat.tool_dialects.reading import NAME, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_BEGIN, _END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL_BEGIN, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


class KimiDialect:
    """Calls between special tokens."""

    name = "kimi_k2"
    tokens = (_BEGIN, _CALL_BEGIN, _ARGUMENTS, _CALL_END, _END)

    def knows(self, template: str) -> bool:
        """By the token before arguments."""
        return _ARGUMENTS in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_BEGIN, _CALL_BEGIN), read_block=_read_block, openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """One section; the index of a call is any number."""
        grammar = GrammarText(tools)
        marker = grammar.marker
        choices = [
            f"{marker(_CALL_BEGIN)} {quote(f'functions.{name}:')} /[0-9]{{1,2}}/ {marker(_ARGUMENTS)} "
            f"{grammar.arguments(name, index)} {marker(_CALL_END)}"
            for index, name in enumerate(names)
        ]
        calls = several(grammar.rule("call", " | ".join(choices)), between='""', at_least_one=at_least_one)
        return grammar.text(f"{marker(_BEGIN)} {calls} {marker(_END)}")


def _read_block(reading: Reading, marker: str) -> Script[None]:
    return read_section(reading, is_open=marker == _BEGIN, call_begin=_CALL_BEGIN, end=_END, read_call=_read_call)


def _read_call(reading: Reading) -> Script[None]:
    yield from reading.skip_space()
    call_id = yield from reading.word(NAME)
    yield from reading.skip_space()
    yield from reading.expect(_ARGUMENTS)
    yield from read_arguments(reading, _name_within(call_id, reading.tools))
    yield from reading.close((_CALL_END,))


def _name_within(call_id: str, tools: DeclaredTools) -> str:
    """The tool that an id names; a name that looks like an id is taken as it is."""
    match = _ID.fullmatch(call_id)
    return call_id if call_id in tools or match is None else match[1]
