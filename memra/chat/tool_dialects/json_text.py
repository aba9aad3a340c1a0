"""JSON while it is written: checked character by character and passed on in pieces.

Trade: the grammar of RFC 8259, from a `Reading` to whoever writes it down. It refuses to know what the values mean.
Two faults of models are mended, because nothing else can be meant: a control character inside a string is escaped, and
a call without arguments may say `null`. All else that is not JSON is refused.
"""

import json
import re
from collections.abc import Callable

from memra.chat.tool_dialects.reading import AnswerEndedError, MalformedCallError, Reading, Script, Write

MAX_DEPTH = 64
"""Arguments nested deeper than this are refused; no tool's schema is."""

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LETTERS = re.compile(r"[a-z]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_LITERALS = frozenset({"true", "false", "null"})


def pass_value(reading: Reading, write: Write, depth: int = 0) -> Script[None]:
    """Take one value and write it as it stands.

    Raises:
        MalformedCallError: it is not JSON, or nested too deep.
        AnswerEndedError: the answer ends inside it.
    """
    if depth > MAX_DEPTH:
        raise MalformedCallError
    match (yield from reading.peek()):
        case "":
            raise AnswerEndedError
        case '"':
            yield from pass_string(reading, write)
        case "{":
            yield from _pass_members(reading, write, depth)
        case "[":
            yield from _pass_items(reading, write, depth)
        case char if char in "-0123456789":
            yield from _pass_word(reading, write, _NUMBER_CHARS, is_valid=_is_number)
        case _:
            yield from _pass_word(reading, write, _LETTERS, is_valid=_LITERALS.__contains__)


def pass_string(reading: Reading, write: Write) -> Script[None]:
    """Take one string and write it with its quotes; a bare control character is written as its escape."""
    yield from reading.expect('"')
    write('"')
    while True:
        if plain := reading.run(_PLAIN):
            write(plain)
        match (yield from reading.peek()):
            case "":
                raise AnswerEndedError
            case '"':
                write(reading.take(1))
                return
            case "\\":
                write((yield from _take_escape(reading)))
            case char if char < " ":
                write(json.dumps(reading.take(1))[1:-1])


def read_string(reading: Reading) -> Script[str]:
    """Take one string and return what it says."""
    parts: list[str] = []
    yield from pass_string(reading, parts.append)
    return str(json.loads("".join(parts)))


def pass_object(reading: Reading, write: Write) -> Script[None]:
    """Take one object and write it as it stands."""
    if (yield from reading.peek()) != "{":
        raise reading.refusal("{")
    yield from _pass_members(reading, write, 0)


def pass_arguments(reading: Reading, write: Write) -> Script[None]:
    """Take the arguments of a call: an object, an object's JSON inside a string (written when it is whole), or null."""
    match (yield from reading.peek()):
        case '"':
            said = yield from read_string(reading)
            write(_object_within(said))
        case "n":
            yield from reading.expect("null")
        case _:
            yield from pass_object(reading, write)
    reading.has_whole_arguments = True


def _object_within(text: str) -> str:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise MalformedCallError from None
    if not isinstance(value, dict):
        raise MalformedCallError
    return text or "{}"


def _take_escape(reading: Reading) -> Script[str]:
    start = yield from reading.peek(2)
    if len(start) < 2:  # noqa: PLR2004  (a backslash and what it escapes)
        raise AnswerEndedError
    if start[1] in '"\\/bfnrt':
        return reading.take(2)
    if start[1] != "u":
        raise MalformedCallError
    escape = yield from reading.peek(6)
    if not _HEX.fullmatch(escape[2:]):
        raise AnswerEndedError if len(escape) < 6 else MalformedCallError  # noqa: PLR2004  (a backslash, u, four digits)
    return reading.take(6)


def _pass_members(reading: Reading, write: Write, depth: int) -> Script[None]:
    write(reading.take(1))
    yield from _pass_space(reading, write)
    if (yield from _passes(reading, write, "}")):
        return
    while True:
        yield from pass_string(reading, write)
        yield from _pass_space(reading, write)
        yield from reading.expect(":")
        write(":")
        yield from _pass_space(reading, write)
        yield from pass_value(reading, write, depth + 1)
        yield from _pass_space(reading, write)
        if (yield from _passes(reading, write, "}")):
            return
        yield from reading.expect(",")
        write(",")
        yield from _pass_space(reading, write)


def _pass_items(reading: Reading, write: Write, depth: int) -> Script[None]:
    write(reading.take(1))
    yield from _pass_space(reading, write)
    if (yield from _passes(reading, write, "]")):
        return
    while True:
        yield from pass_value(reading, write, depth + 1)
        yield from _pass_space(reading, write)
        if (yield from _passes(reading, write, "]")):
            return
        yield from reading.expect(",")
        write(",")
        yield from _pass_space(reading, write)


def _passes(reading: Reading, write: Write, char: str) -> Script[bool]:
    found = yield from reading.accept(char)
    if found:
        write(char)
    return found


def _pass_space(reading: Reading, write: Write) -> Script[None]:
    write((yield from reading.word(_SPACE)))


def _pass_word(
    reading: Reading, write: Write, pattern: re.Pattern[str], *, is_valid: Callable[[str], bool]
) -> Script[None]:
    """A number or a literal: nothing is written before the character after it shows that it is whole."""
    word = yield from reading.word(pattern)
    if not is_valid(word):
        raise reading.refusal()
    write(word)


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None
