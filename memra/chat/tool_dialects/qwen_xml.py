"""The dialect of Qwen3-Coder, Qwen3.5, Nemotron 3 and Step 3.5: XML tags inside `<tool_call>`.

`<tool_call>`, `<function=NAME>`, for each parameter `<parameter=KEY>`, the value on lines of its own, `</parameter>`,
then `</function>` and `</tool_call>`. Seed-OSS has the same tags inside `<seed:tool_call>`, values without line breaks.
Models leave the outer tag out at times, and some fall back to Hermes' JSON inside it; both are read.
Source: the models' chat templates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memra.chat.tool_dialects import hermes
from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare, reads_calls
from memra.chat.tool_dialects.reading import Reading, Script
from memra.chat.tool_dialects.scripted_parser import ScriptedParser
from memra.chat.tool_dialects.tagged_calls import Tags, reads_tagged
from memra.chat.tool_dialects.tagged_grammar import tagged_calls

_SEED_OPEN, _SEED_CLOSE = "<seed:tool_call>", "</seed:tool_call>"
_TAGS = Tags(
    begin="<function=",
    after_name=">",
    end="</function>",
    before_key="<parameter=",
    after_keys=((">", None),),
    after_value="</parameter>",
    has_line_breaks=True,
    has_outer_each=True,
)
_read_tagged = reads_tagged(_TAGS, closers=(hermes.CLOSE, _SEED_CLOSE))
_read_json = reads_calls(hermes.CLOSE)


class QwenXmlDialect:
    """Calls as XML tags."""

    name = "qwen_xml"

    def __init__(self, *, outer: tuple[str, str] = (hermes.OPEN, hermes.CLOSE)) -> None:
        """Speak the dialect with these tags around each call."""
        self._outer = outer
        self.tokens = outer

    def knows(self, template: str) -> bool:
        """By the tag of a function, which JSON dialects with the same outer tag lack."""
        return self._outer[0] in template and "<function=" in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(self._outer[0], _TAGS.begin),
            read_block=_read_block,
            openings={"{": opens_bare(self._outer[1])},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Each call in tags of its own."""
        return tagged_calls(tools, names=names, tags=replace(_TAGS, outer=self._outer), at_least_one=at_least_one)


class SeedDialect(QwenXmlDialect):
    """Seed-OSS: the same with another outer tag."""

    name = "seed"

    def __init__(self) -> None:
        super().__init__(outer=(_SEED_OPEN, _SEED_CLOSE))


def _read_block(reading: Reading, marker: str) -> Script[None]:
    if marker != _TAGS.begin:
        yield from reading.skip_space()
        if (yield from reading.peek()) == "{":
            yield from _read_json(reading, marker)
            return
    yield from _read_tagged(reading, marker)
