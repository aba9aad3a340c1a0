"""The dialects with `<invoke name="NAME">`: MiniMax M2 and M3, DeepSeek V3.2 and V4, Step 3, Muse.

Parameters are `<parameter name="KEY">`. MiniMax M2 puts the calls inside `<minimax:tool_call>`; M3 puts a token of its
own before every tag, calls the tag of a parameter by its name, and writes objects and arrays as tags inside it.
DeepSeek prefixes every tag with its own mark, says of each value whether it is a string, and puts the calls inside
`function_calls` (V3.2) or `tool_calls` (V4). Step 3 prefixes the tags and puts each call between special tokens; Muse
prefixes them and puts all calls inside `function_calls`.
Source: the models' chat templates, and Step 3's deployment guide.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.scripted_parser import ScriptedParser
from memra.chat.tool_dialects.tagged_calls import Tags, reads_tagged
from memra.chat.tool_dialects.tagged_grammar import tagged_calls


def _invoke_tags(
    prefix: str, *, outer: tuple[str, str], is_typed: bool = False, lead: str = "", trail: str = ""
) -> Tags:
    typed = (('" string="true">', True), ('" string="false">', False)) if is_typed else ()
    return Tags(
        begin=f'<{prefix}invoke name="',
        after_name='">',
        end=f"</{prefix}invoke>",
        before_key=f'<{prefix}parameter name="',
        after_keys=(*typed, ('">', None)),
        after_value=f"</{prefix}parameter>",
        lead=lead,
        trail=trail,
        outer=outer,
    )


class InvokeDialect:
    """Calls as `invoke` tags inside an outer pair."""

    def __init__(self, name: str, tags: Tags, *, signs: Sequence[str] = ()) -> None:
        """Speak one of these dialects.

        Args:
            name: of the dialect.
            tags: of the calls, with the markers around them.
            signs: a template that speaks the dialect has all of these; the opening marker when there are none.
        """
        self.name = name
        self.tokens = tags.tokens
        self._tags = tags
        self._signs = tuple(signs) or tags.outer[:1]

    def knows(self, template: str) -> bool:
        """By the signs."""
        return all(sign in template for sign in self._signs)

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        opening, closing = self._tags.outer
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(opening,),
            read_block=reads_tagged(self._tags, closers=(closing,)),
            openings={"{": opens_bare(closing)},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """All calls between the outer markers."""
        return tagged_calls(tools, names=names, tags=self._tags, at_least_one=at_least_one)


def minimax_m2() -> InvokeDialect:
    """MiniMax M2."""
    return InvokeDialect("minimax_m2", _invoke_tags("", outer=("<minimax:tool_call>", "</minimax:tool_call>")))


_M3 = "]<]minimax[>["


def minimax_m3() -> InvokeDialect:
    """MiniMax M3; what stands inside a value may as well be JSON."""
    tags = Tags(
        begin=f'{_M3}<invoke name="',
        after_name='">',
        end=f"{_M3}</invoke>",
        before_key=f"{_M3}<",
        after_keys=((">", None),),
        after_value=f"{_M3}</{{key}}>",
        before_element=_M3,
        outer=(f"{_M3}<tool_call>", f"{_M3}</tool_call>"),
    )
    return InvokeDialect("minimax_m3", tags, signs=(_M3,))


def muse() -> InvokeDialect:
    """Muse."""
    return InvokeDialect("muse", _invoke_tags("atem:", outer=("<atem:function_calls>", "</atem:function_calls>")))


_BAR = "\uff5c"
_DSML = f"{_BAR}DSML{_BAR}"
"""The mark in DeepSeek's tags; its bars are full-width."""


def deepseek_dsml(outer: str) -> InvokeDialect:
    """DeepSeek from V3.2 on; `outer` is `function_calls` or `tool_calls`."""
    pair = (f"<{_DSML}{outer}>", f"</{_DSML}{outer}>")
    tags = _invoke_tags(_DSML, outer=pair, is_typed=True)
    return InvokeDialect(f"deepseek_{outer}", tags, signs=(_DSML, f"{outer}>"))


def step3() -> InvokeDialect:
    """Step 3; later ones speak Qwen's XML."""
    tags = _invoke_tags(
        "steptml:",
        outer=(f"<{_BAR}tool_calls_begin{_BAR}>", f"<{_BAR}tool_calls_end{_BAR}>"),
        lead=f"<{_BAR}tool_call_begin{_BAR}>function<{_BAR}tool_sep{_BAR}>",
        trail=f"<{_BAR}tool_call_end{_BAR}>",
    )
    return InvokeDialect("step3", tags)
