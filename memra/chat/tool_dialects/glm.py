"""The dialect of GLM 4.5 to 4.7: `<tool_call>NAME`, then pairs of `<arg_key>` and `<arg_value>`, then `</tool_call>`.

Ling 3, Spark 2.5 and Laguna speak it as well; they differ in line breaks, which are space of the format.
Source: the models' chat templates.
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
    begin="<tool_call>",
    after_name="",
    end="</tool_call>",
    before_key="<arg_key>",
    after_keys=(("</arg_key>", None),),
    before_value="<arg_value>",
    after_value="</arg_value>",
)


class GlmDialect:
    """Calls as pairs of tags."""

    name = "glm"
    tokens = _TAGS.tokens

    def knows(self, template: str) -> bool:
        """By the tag of a parameter's name."""
        return _TAGS.before_key in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(_TAGS.begin,),
            read_block=reads_tagged(_TAGS),
            openings={"{": opens_bare(_TAGS.end)},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Line by line, as GLM 4.6 writes it."""
        return tagged_calls(tools, names=names, tags=_TAGS, at_least_one=at_least_one)
