"""The dialect of MiniCPM5: `<function name="NAME"><param name="KEY">value</param></function>`.

Values with markup or line breaks stand in `<![CDATA[...]]>`. Several calls are several such elements.
Source: the model's chat template.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.scripted_parser import ScriptedParser
from memra.chat.tool_dialects.tagged_calls import Tags, reads_tagged
from memra.chat.tool_dialects.tagged_grammar import tagged_calls

_TAGS = Tags(
    begin='<function name="',
    after_name='">',
    end="</function>",
    before_key='<param name="',
    after_keys=(('">', None),),
    after_value="</param>",
    quotes=("<![CDATA[", "]]>"),
)


class MiniCpmDialect:
    """Calls as elements with no marker around them."""

    name = "minicpm"
    tokens = _TAGS.tokens

    def knows(self, template: str) -> bool:
        """By the tags of a call and of a parameter."""
        return _TAGS.begin in template and _TAGS.before_key in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(_TAGS.begin,), read_block=reads_tagged(_TAGS), openings={"{": opens_bare()}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Elements on lines of their own."""
        return tagged_calls(tools, names=names, tags=_TAGS, at_least_one=at_least_one)
