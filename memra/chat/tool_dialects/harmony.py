"""The dialect of gpt-oss, OpenAI's harmony: a message to `functions.NAME` in the commentary channel.

`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`; the recipient may stand before the
channel, right behind `<|start|>assistant` (with which a prompt ends, so an answer may begin with it). Channels without
a recipient in `functions` are no calls, and their markup passes: reasoning is not this room's trade.
Source: OpenAI's description of the harmony response format, and the model's chat template.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.lark_grammar import GrammarText, quote
from memra.chat.tool_dialects.name_first_calls import read_arguments
from memra.chat.tool_dialects.reading import NAME, Reading, Script, tokens_within
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_START, _CHANNEL, _MESSAGE = "<|start|>assistant", "<|channel|>commentary", "<|message|>"
_CONSTRAIN, _CALL, _END = "<|constrain|>", "<|call|>", "<|end|>"
_RECIPIENT = "to=functions."


class HarmonyDialect:
    """Calls as messages to functions."""

    name = "harmony"
    tokens = (*tokens_within(_START + _CHANNEL), _CONSTRAIN, _MESSAGE, _CALL, _END)

    def knows(self, template: str) -> bool:
        """By the tokens of messages and channels."""
        return "<|channel|>" in template and _MESSAGE in template and "functions" in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools),
            markers=(_START, _CHANNEL),
            read_block=_read_block,
            openings={"{": opens_bare(_CALL), "t": _read_recipient_first},
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:  # noqa: ARG002
        """One call: the token behind it ends the answer."""
        grammar = GrammarText(tools)
        header = f"{grammar.marker(_CHANNEL)} {quote(' ' + _RECIPIENT)}"
        kind = f'" " {grammar.marker(_CONSTRAIN)} "json" {grammar.marker(_MESSAGE)}'
        choices = [f"{header} {quote(name)} {kind} {grammar.arguments(name, at)}" for at, name in enumerate(names)]
        return grammar.text(grammar.rule("call", " | ".join(choices)))


def _read_block(reading: Reading, marker: str) -> Script[None]:
    yield from reading.skip_space()
    if marker == _START and not (yield from reading.accept(_CHANNEL)):
        yield from _read_recipient_first(reading)
        return
    yield from reading.skip_space()
    yield from reading.expect(_RECIPIENT)
    name = yield from reading.word(NAME)
    yield from _read_message(reading, name)


def _read_recipient_first(reading: Reading) -> Script[None]:
    yield from reading.expect(_RECIPIENT)
    name = yield from reading.word(NAME)
    yield from reading.expect(_CHANNEL)
    yield from _read_message(reading, name)


def _read_message(reading: Reading, name: str) -> Script[None]:
    yield from reading.skip_space()
    yield from reading.accept(_CONSTRAIN)
    yield from reading.word(NAME)  # what the content is: `json`, or nothing
    yield from reading.expect(_MESSAGE)
    yield from read_arguments(reading, name)
    yield from reading.close((_CALL, _END))
