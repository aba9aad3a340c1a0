"""The dialect of Solar Open: an id, a name and the JSON of the arguments between special tokens.

`<|tool_calls|>`, for each call `<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{...}<|tool_call:end|>`,
then `<|calls|>`.
Source: the model's chat template.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.lark_grammar import GrammarText, quote, several
from memra.chat.tool_dialects.name_first_calls import read_arguments, read_section
from memra.chat.tool_dialects.reading import NAME, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_BEGIN, _END = "<|tool_calls|>", "<|calls|>"
_CALL_BEGIN, _CALL_END = "<|tool_call:begin|>", "<|tool_call:end|>"
_NAME, _ARGUMENTS = "<|tool_call:name|>", "<|tool_call:args|>"


class SolarDialect:
    """Calls between special tokens."""

    name = "solar"
    tokens = (_BEGIN, _CALL_BEGIN, _NAME, _ARGUMENTS, _CALL_END)

    def knows(self, template: str) -> bool:
        """By the token before arguments."""
        return _ARGUMENTS in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_BEGIN, _CALL_BEGIN), read_block=_read_block, openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """One section; the token behind it ends the answer, and is left to the model."""
        grammar = GrammarText(tools)
        marker = grammar.marker
        choices = [
            f"{marker(_CALL_BEGIN)} /[a-z0-9]{{10}}/ {marker(_NAME)} {quote(name)} {marker(_ARGUMENTS)} "
            f"{grammar.arguments(name, index)} {marker(_CALL_END)}"
            for index, name in enumerate(names)
        ]
        calls = several(grammar.rule("call", " | ".join(choices)), between='""', at_least_one=at_least_one)
        return grammar.text(f"{marker(_BEGIN)} {calls}")


def _read_block(reading: Reading, marker: str) -> Script[None]:
    return read_section(reading, is_open=marker == _BEGIN, call_begin=_CALL_BEGIN, end=_END, read_call=_read_call)


def _read_call(reading: Reading) -> Script[None]:
    yield from reading.skip_space()
    yield from reading.word(NAME)  # an id of the model's own
    yield from reading.expect(_NAME)
    name = yield from reading.word(NAME)
    yield from reading.expect(_ARGUMENTS)
    yield from read_arguments(reading, name)
    yield from reading.close((_CALL_END,))
