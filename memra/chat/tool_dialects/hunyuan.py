"""The dialects of Hunyuan: a JSON array inside `<tool_calls>` (A13B), and pairs of tags inside it (Hy3).

Hy3: `<tool_calls>`, for each call `<tool_call>NAME<tool_sep>`, pairs of `<arg_key>` and `<arg_value>`, `</tool_call>`,
then `</tool_calls>`; its open weights add `:opensource` to every tag. The array (in `json_dialects`) is Apriel's and,
without brackets, MiniMax M1's format as well.
Source: the models' chat templates, and the guide to function calls in Hunyuan A13B's repository.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.scripted_parser import ScriptedParser
from memra.chat.tool_dialects.tagged_calls import Tags, reads_tagged
from memra.chat.tool_dialects.tagged_grammar import tagged_calls


class HunyuanTagDialect:
    """Hy3's pairs of tags."""

    def __init__(self, suffix: str) -> None:
        """Speak the dialect with this suffix in every tag."""
        self.name = f"hunyuan3{suffix}"
        self._suffix = suffix
        self._outer = (f"<tool_calls{suffix}>", f"</tool_calls{suffix}>")
        self._tags = Tags(
            begin=f"<tool_call{suffix}>",
            after_name=f"<tool_sep{suffix}>",
            end=f"</tool_call{suffix}>",
            before_key=f"<arg_key{suffix}>",
            after_keys=((f"</arg_key{suffix}>", None),),
            before_value=f"<arg_value{suffix}>",
            after_value=f"</arg_value{suffix}>",
            outer=self._outer,
        )
        self.tokens = self._tags.tokens

    def knows(self, template: str) -> bool:
        """By the tags behind a name and before a parameter, and the suffix, which templates put in later."""
        return "<tool_sep" in template and "<arg_key" in template and self._suffix in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(self._outer[0],),
            read_block=reads_tagged(self._tags, closers=self._outer[1:]),
            openings={"{": opens_bare(self._outer[1])},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """All calls inside one outer pair."""
        return tagged_calls(tools, names=names, tags=self._tags, at_least_one=at_least_one)
