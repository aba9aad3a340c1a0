"""Calls as Python writes them: `[get_weather(city="Rome", days=3), now()]`.

Trade: the list and the calls in it, for every dialect that has them. It refuses to know markers. Where the schema
rules out how a value is written, the value is turned: a number where only a string will do, a quoted number where no
string will.
"""

import json
import re
from collections.abc import Sequence

from memra.chat.tool_dialects.declared_tools import coerce
from memra.chat.tool_dialects.python_text import (
    json_of_word,
    pass_python,
    pass_python_string,
    skip_comma,
    take_word,
)
from memra.chat.tool_dialects.reading import NAME, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ReadBlock

_KEY = re.compile(r"\w*")


def reads_python(*, closers: Sequence[str] = ()) -> ReadBlock:
    """A list of calls, with or without its brackets, up to one of these closing markers, which may be missing."""

    def read_block(reading: Reading, _marker: str) -> Script[None]:
        yield from reading.skip_space()
        is_list = yield from reading.accept("[")
        yield from reading.skip_space()
        yield from read_python_call(reading)
        yield from reading.skip_space()
        while (yield from reading.accept(",")):
            yield from reading.skip_space()
            yield from read_python_call(reading)
            yield from reading.skip_space()
        if is_list:
            yield from reading.close(("]",))
        yield from reading.close(closers)

    return read_block


def read_python_call(reading: Reading) -> Script[None]:
    """Take one call with keyword arguments."""
    name = yield from reading.word(NAME)
    yield from reading.expect("(")
    if name not in reading.tools:
        name = name.removesuffix(".call")  # Llama's way to call the tools that it was trained with
    reading.begin(name)
    yield from reading.skip_space()
    separator = "{"
    while not (yield from reading.accept(")")):
        reading.argue(separator)
        separator = ", "
        yield from _read_argument(reading, name)
        yield from skip_comma(reading, ")")
    if separator != "{":
        reading.argue("}")
    reading.end()


def _read_argument(reading: Reading, name: str) -> Script[None]:
    key = yield from reading.word(_KEY)
    yield from reading.skip_space()
    if not key or (yield from reading.peek()) != "=":
        raise reading.refusal("=")
    reading.take(1)
    yield from reading.skip_space()
    reading.argue(f"{json.dumps(key, ensure_ascii=False)}: ")
    types = reading.tools.types(name, key)
    match (yield from reading.peek()):
        case "'" | '"' if types and "string" not in types:
            written: list[str] = []
            yield from pass_python_string(reading, written.append)
            reading.argue(coerce(json.loads("".join(written)), types))
        case char if char and char not in "'\"[({" and types == {"string"}:
            word = yield from take_word(reading)
            json_of_word(word)
            reading.argue(json.dumps(word))
        case _:
            yield from pass_python(reading, reading.argue)
