"""The dialect of Gemma 4: `<|tool_call>call:NAME{key:<|"|>text<|"|>,other:3}<tool_call|>`.

Keys stand bare, strings between two equal tokens with nothing escaped inside; the rest is as in JSON.
Source: the model's chat template.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.contract import ToolParser
from memra.chat.tool_dialects.declared_tools import DeclaredTools
from memra.chat.tool_dialects.gemma_grammar import CLOSE, OPEN, QUOTE, gemma_calls
from memra.chat.tool_dialects.json_calls import opens_bare
from memra.chat.tool_dialects.json_text import MAX_DEPTH
from memra.chat.tool_dialects.python_text import json_of_word, skip_comma, take_word
from memra.chat.tool_dialects.reading import NAME, AnswerEndedError, MalformedCallError, Reading, Script, Write
from memra.chat.tool_dialects.scripted_parser import ScriptedParser

_KEY = re.compile(r'[^\s:,{}\[\]"<|]*')


class GemmaDialect:
    """Calls in Gemma's own notation."""

    name = "gemma4"
    tokens = (OPEN, CLOSE, QUOTE)

    def knows(self, template: str) -> bool:
        """By the opening token."""
        return OPEN in template

    def open(self, tools: Sequence[Mapping[str, Any]]) -> ToolParser:
        """Begin an answer."""
        return ScriptedParser(
            DeclaredTools(tools), markers=(OPEN,), read_block=_read_block, openings={"{": opens_bare(CLOSE)}
        )

    def grammar(self, tools: Sequence[Mapping[str, Any]], *, names: Sequence[str], at_least_one: bool) -> str:
        """Calls one behind the other."""
        return gemma_calls(tools, names=names, at_least_one=at_least_one)


def _read_block(reading: Reading, _marker: str) -> Script[None]:
    yield from reading.skip_space()
    yield from reading.expect("call:")
    name = yield from reading.word(NAME)
    if (yield from reading.peek()) != "{":
        raise reading.refusal("{")
    reading.begin(name)
    yield from _pass_object(reading, reading.argue, 0)
    reading.end()
    yield from reading.close((CLOSE,))


def _pass_value(reading: Reading, write: Write, depth: int) -> Script[None]:
    if depth > MAX_DEPTH:
        raise MalformedCallError
    match (yield from reading.peek()):
        case "":
            raise AnswerEndedError
        case "<":
            yield from _pass_string(reading, write)
        case "{":
            yield from _pass_object(reading, write, depth)
        case "[":
            yield from _pass_list(reading, write, depth)
        case _:
            write(json_of_word((yield from take_word(reading))))


def _pass_string(reading: Reading, write: Write) -> Script[None]:
    yield from reading.expect(QUOTE)
    write('"')
    yield from reading.pass_until((QUOTE,), lambda text: write(json.dumps(text, ensure_ascii=False)[1:-1]))
    write('"')


def _pass_object(reading: Reading, write: Write, depth: int) -> Script[None]:
    reading.take(1)
    separator = "{"
    yield from reading.skip_space()
    while not (yield from reading.accept("}")):
        write(separator)
        separator = ", "
        yield from _pass_key(reading, write)
        yield from reading.skip_space()
        yield from reading.expect(":")
        write(": ")
        yield from reading.skip_space()
        yield from _pass_value(reading, write, depth + 1)
        yield from skip_comma(reading, "}")
    write("{}" if separator == "{" else "}")


def _pass_key(reading: Reading, write: Write) -> Script[None]:
    if (yield from reading.peek()) == "<":
        yield from _pass_string(reading, write)
        return
    key = yield from reading.word(_KEY)
    if not key:
        raise reading.refusal()
    write(json.dumps(key, ensure_ascii=False))


def _pass_list(reading: Reading, write: Write, depth: int) -> Script[None]:
    reading.take(1)
    write("[")
    separator = ""
    yield from reading.skip_space()
    while not (yield from reading.accept("]")):
        write(separator)
        separator = ", "
        yield from _pass_value(reading, write, depth + 1)
        yield from skip_comma(reading, "]")
    write("]")
