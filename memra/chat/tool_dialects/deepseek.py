"""The dialect of DeepSeek R1, V3 and V3.1: calls between special tokens whose bars and blanks are of a special kind.

V3.1 writes a name, a separator and the JSON of the arguments; R1 and V3 write `function`, the separator, the name, and
the JSON inside a fence. V3.2 and V4 speak another one, see `invoke_tags`.
Source: the models' chat templates.
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


def _token(words: str) -> str:
    return f"<\uff5c{words}\uff5c>".replace(" ", "\u2581")


_BEGIN, _END = _token("tool calls begin"), _token("tool calls end")
_CALL_BEGIN, _CALL_END = _token("tool call begin"), _token("tool call end")
_SEPARATOR = _token("tool sep")
_KIND, _FENCE, _FENCE_END = "function", "```json", "```"


class DeepSeekDialect:
    """Calls between special tokens."""

    tokens = (_BEGIN, _CALL_BEGIN, _SEPARATOR, _CALL_END, _END)

    def __init__(self, *, is_fenced: bool) -> None:
        """Speak the dialect; both ways are read, and forced calls are written in the one that is given here."""
        self.name = "deepseek_v3" if is_fenced else "deepseek_v31"
        self._is_fenced = is_fenced

    def knows(self, template: str) -> bool:
        """By the separator, and by the fence."""
        return _SEPARATOR in template and (_FENCE in template) == self._is_fenced

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_BEGIN, _CALL_BEGIN), read_block=_read_block, openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """All calls between the outer tokens."""
        grammar = GrammarText(tools)
        marker = grammar.marker
        before = f"{quote(_KIND)} {marker(_SEPARATOR)}" if self._is_fenced else '""'
        between = quote(f"\n{_FENCE}\n") if self._is_fenced else marker(_SEPARATOR)
        after = quote(f"\n{_FENCE_END}") if self._is_fenced else '""'
        choices = [
            f"{marker(_CALL_BEGIN)} {before} {quote(name)} {between} {grammar.arguments(name, index)} {after} "
            f"{marker(_CALL_END)}"
            for index, name in enumerate(names)
        ]
        call = grammar.rule("call", " | ".join(choices))
        gap = quote("\n") if self._is_fenced else '""'
        calls = several(call, between=gap, at_least_one=at_least_one)
        return grammar.text(f"{marker(_BEGIN)} {calls} {marker(_END)}")


def _read_block(reading: Reading, marker: str) -> Script[None]:
    return read_section(reading, is_open=marker == _BEGIN, call_begin=_CALL_BEGIN, end=_END, read_call=_read_call)


def _read_call(reading: Reading) -> Script[None]:
    yield from reading.skip_space()
    name = yield from reading.word(NAME)
    yield from reading.expect(_SEPARATOR)
    if name == _KIND and (yield from _is_name_next(reading)):
        name = yield from reading.word(NAME)
        yield from reading.skip_space()
        yield from reading.accept(_FENCE)
    yield from read_arguments(reading, name)
    yield from reading.close((_FENCE_END,))
    yield from reading.close((_CALL_END,))


def _is_name_next(reading: Reading) -> Script[bool]:
    return (yield from reading.peek()) not in ("", "{")
