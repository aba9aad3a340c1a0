"""The dialects of Llama 3 and 4: `{"name": ..., "parameters": {...}}`, or a Python list of calls.

Llama 3.1 to 3.3 answer with the bare object, at times behind `<|python_tag|>`, several of them with semicolons between;
the tools that Llama was trained with are written `NAME.call(...)` there, and a custom format is
`<function=NAME>{...}</function>`. Llama 3.2's small models and Llama 4 answer with the list, at times between
`<|python_start|>` and `<|python_end|>`.
Source: Meta's prompt format documentation, and the models' chat templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.lark_grammar import json_object_calls, several
from memra.chat.tool_dialects.name_first_calls import read_arguments
from memra.chat.tool_dialects.python_calls import reads_python
from memra.chat.tool_dialects.python_grammar import python_calls
from memra.chat.tool_dialects.reading import NAME, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_TAG, _START, _END, _FUNCTION = "<|python_tag|>", "<|python_start|>", "<|python_end|>", "<function="
_read_json = reads_calls()
_read_python = reads_python(closers=(_END,))


class LlamaDialect:
    """Calls as bare JSON objects, or as a bare Python list."""

    tokens = (_TAG, _START, _END)

    def __init__(self, *, is_pythonic: bool) -> None:
        """Speak the dialect; both ways are read, and forced calls are written in the one that is given here."""
        self.name = "llama_pythonic" if is_pythonic else "llama_json"
        self._is_pythonic = is_pythonic

    def knows(self, template: str) -> bool:
        """By what the template tells the model to write."""
        if self._is_pythonic:
            return _START in template or "[func_name1(" in template
        return _TAG in template or '{"name": function name, "parameters":' in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(_TAG, _START, _FUNCTION),
            read_block=_read_block,
            openings={"{": opens_bare(may_repeat=True), "[": _read_list},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Objects with semicolons between them, or one list."""
        if self._is_pythonic:
            return python_calls(tools, names=names, around=("", ""), at_least_one=at_least_one)
        return json_object_calls(
            tools,
            names=names,
            arguments_key="parameters",
            wrap=lambda _, call: several(call, between='"; "', at_least_one=at_least_one),
        )


def _read_list(reading: Reading) -> Script[None]:
    yield from _read_python(reading, "")


def _read_block(reading: Reading, marker: str) -> Script[None]:
    if marker == _FUNCTION:
        name = yield from reading.word(NAME)
        yield from reading.expect(">")
        yield from read_arguments(reading, name)
        yield from reading.close(("</function>",))
        return
    yield from reading.skip_space()
    is_json = (yield from reading.peek()) == "{"
    yield from _read_json(reading, marker) if is_json else _read_python(reading, marker)
