"""The dialect of LFM2: a Python list of calls between `<|tool_call_start|>` and `<|tool_call_end|>`.

Source: the models' chat templates and model cards.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.python_calls import reads_python
from memra.chat.tool_dialects.python_grammar import python_calls
from memra.chat.tool_dialects.reading import Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_OPEN, _CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
_SIGNS = (_OPEN, "<|tool_list_start|>", "<|tool_response_start|>", "List of tools: [")
_read_python = reads_python(closers=(_CLOSE,))
_read_json = reads_calls(_CLOSE)


class Lfm2Dialect:
    """Calls as Python between markers; a prompt may ask for JSON in the same place."""

    name = "lfm2"
    tokens = (_OPEN, _CLOSE)

    def knows(self, template: str) -> bool:
        """By the way that tools are listed; the templates do not all show a call."""
        return any(sign in template for sign in _SIGNS)

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_OPEN,), read_block=_read_block, openings={"{": opens_bare(_CLOSE)}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """A list of Python calls."""
        return python_calls(tools, names=names, around=(_OPEN, _CLOSE), at_least_one=at_least_one)


def _read_block(reading: Reading, marker: str) -> Script[None]:
    yield from reading.skip_space()
    ahead = (yield from reading.peek()) or " "
    if ahead == "[":
        ahead = ((yield from reading.peek(2)) + " ")[1]
    yield from _read_json(reading, marker) if ahead == "{" else _read_python(reading, marker)
