"""The dialects that put a JSON array of calls between two markers.

Granite 3, Phi-4-mini, Hunyuan A13B and Apriel, MiniMax M1, Nemotron Nano 2, and Cohere's Command R family, whose
objects have `tool_name` and `parameters`. Each is one line of `ARRAY_DIALECTS`. An array may as well be objects in a
row.
Source: the models' chat templates and model cards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.lark_grammar import GrammarText, json_object_calls, several
from memra.chat.tool_dialects.reading import tokens_within
from memra.chat.tool_dialects.scripted_parser import ScriptedParser


@dataclass(frozen=True, slots=True)
class JsonArrayDialect:
    """One of these dialects.

    Attributes:
        name: of the dialect.
        openers: the markers before the array; forced calls have the first.
        closer: stands behind it; empty where nothing does.
        signs: a template with one of these in its source speaks the dialect.
        name_key: of the objects.
        arguments_key: of the objects.
    """

    name: str
    openers: tuple[str, ...]
    closer: str
    signs: tuple[str, ...]
    name_key: str = "name"
    arguments_key: str = "arguments"

    @property
    def tokens(self) -> tuple[str, ...]:
        """The markers, but for those that are words."""
        return tuple(token for text in (*self.openers, self.closer) for token in tokens_within(text))

    def knows(self, template: str) -> bool:
        """By the signs."""
        return any(sign in template for sign in self.signs)

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        closers = (self.closer,) if self.closer else ()
        return ScriptedParser(
            DeclaredTools(tools),
            markers=self.openers,
            read_block=reads_calls(*closers),
            openings={"{": opens_bare(*closers)},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """One array between the markers."""

        def wrap(grammar: GrammarText, call: str) -> str:
            calls = several(call, between='", "', at_least_one=at_least_one)
            return f'{grammar.marker(self.openers[0])} "[" {calls} "]" {grammar.marker(self.closer)}'

        return json_object_calls(
            tools, names=names, name_key=self.name_key, arguments_key=self.arguments_key, wrap=wrap
        )


_COHERE = {"name_key": "tool_name", "arguments_key": "parameters"}

ARRAY_DIALECTS: tuple[JsonArrayDialect, ...] = (
    JsonArrayDialect("command_a", ("<|START_ACTION|>",), "<|END_ACTION|>", ("<|START_ACTION|>",), **_COHERE),
    JsonArrayDialect(
        "command_r", ("Action:\n```json\n", "Action: ```json\n"), "```", ("Action:\\n```json",), **_COHERE
    ),
    JsonArrayDialect(
        "phi4", ("<|tool_call|>", "functools"), "<|/tool_call|>", ("<|/tool_call|>", "<|/tool|>", "functools")
    ),
    JsonArrayDialect("granite", ("<|tool_call|>",), "", ("<|tool_call|>",)),
    JsonArrayDialect("nemotron2", ("<TOOLCALL>",), "</TOOLCALL>", ("<TOOLCALL>",)),
    JsonArrayDialect("hunyuan", ("<tool_calls>",), "</tool_calls>", ("<tool_calls>",)),
)
"""In the order in which they are asked: Phi-4 before Granite, which shares its marker."""
