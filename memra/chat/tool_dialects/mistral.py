"""The dialect of Mistral: `[TOOL_CALLS]`, then an array of JSON objects, or `NAME[ARGS]{...}`.

The array is that of the tokenizers up to v7; from v11 on each call has a marker of its own and may have `[CALL_ID]` and
an id behind its name.
Source: the models' chat templates, and mistral-common's description of its tokenizers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_object_calls, quote, several
from memra.chat.tool_dialects.name_first_calls import read_arguments
from memra.chat.tool_dialects.reading import NAME, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_MARKER, _ARGUMENTS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_read_array = reads_calls()


class MistralDialect:
    """Calls as an array, or name by name."""

    tokens = (_MARKER, _ARGUMENTS, _CALL_ID)

    def __init__(self, *, is_array: bool) -> None:
        """Speak the dialect; both ways are read, and forced calls are written in the one that is given here."""
        self.name = "mistral_array" if is_array else "mistral"
        self._is_array = is_array

    def knows(self, template: str) -> bool:
        """By the marker, and by the one before arguments, which the array has not."""
        return _MARKER in template and (_ARGUMENTS in template) != self._is_array

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_MARKER,), read_block=_read_block, openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """One array, or one marker for each call."""
        if self._is_array:
            return json_object_calls(
                tools,
                names=names,
                wrap=lambda grammar, call: (
                    f'{grammar.marker(_MARKER)} "[" {several(call, between=_COMMA, at_least_one=at_least_one)} "]"'
                ),
            )
        grammar = GrammarText(tools)
        choices = [
            f"{grammar.marker(_MARKER)} {quote(name)} {grammar.marker(_ARGUMENTS)} {grammar.arguments(name, index)}"
            for index, name in enumerate(names)
        ]
        call = grammar.rule("call", " | ".join(choices))
        return grammar.text(several(call, between='""', at_least_one=at_least_one))


_COMMA = '", "'


def _read_block(reading: Reading, marker: str) -> Script[None]:
    yield from reading.skip_space()
    if (yield from reading.peek()) == "[":
        yield from _read_array(reading, marker)
        return
    name = yield from reading.word(NAME)
    if (yield from reading.accept(_CALL_ID)):
        yield from reading.word(NAME)
    yield from reading.expect(_ARGUMENTS)
    yield from read_arguments(reading, name)
