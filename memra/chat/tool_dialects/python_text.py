"""Python's literals while they are written, as JSON.

Trade: strings, numbers, names, lists, tuples and dictionaries, from a `Reading` to JSON in the hands of whoever writes
it down. `true`, `false` and `null` are read as well, since models mix the languages. Strings are passed on while they
are written. It refuses expressions.

Source: the section on literals in Python's language reference.
"""

import json
import re

from memra.chat.tool_dialects.json_text import MAX_DEPTH
from memra.chat.tool_dialects.reading import AnswerEndedError, MalformedCallError, Reading, Script, Write

_PLAIN = {"'": re.compile(r"[^'\\]*"), '"': re.compile(r'[^"\\]*')}
_NUMBER_CHARS = re.compile(r"[-+.0-9eE_]*")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LETTERS = re.compile(r"[A-Za-z]*")
_NAMED = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_CLOSERS = {"[": "]", "(": ")"}


def pass_python(reading: Reading, write: Write, depth: int = 0) -> Script[None]:
    """Take one literal and write it as JSON.

    Raises:
        MalformedCallError: it is none, or nested too deep.
        AnswerEndedError: the answer ends inside it.
    """
    if depth > MAX_DEPTH:
        raise MalformedCallError
    match (yield from reading.peek()):
        case "":
            raise AnswerEndedError
        case "'" | '"':
            yield from pass_python_string(reading, write)
        case "{":
            yield from _pass_dictionary(reading, write, depth)
        case "[" | "(":
            yield from _pass_sequence(reading, write, depth)
        case _:
            write(json_of_word((yield from take_word(reading))))


def take_word(reading: Reading) -> Script[str]:
    """Take a number or a name, whole."""
    if word := (yield from reading.word(_NUMBER_CHARS)):
        return word
    return (yield from reading.word(_LETTERS))


def json_of_word(word: str) -> str:
    """The JSON of a number or a name.

    Raises:
        MalformedCallError: it is neither.
    """
    if word in _NAMED:
        return _NAMED[word]
    if _JSON_NUMBER.fullmatch(word):
        return word
    try:
        return json.dumps(int(word) if word.isdecimal() else float(word), allow_nan=False)
    except ValueError:
        raise MalformedCallError from None


def pass_python_string(reading: Reading, write: Write) -> Script[None]:
    """Take one string, perhaps in three quotes, and write it as JSON's."""
    quote = yield from reading.peek()
    closing = quote * 3 if (yield from reading.accept(quote * 3)) else reading.take(1)
    write('"')
    while not (yield from _closes(reading, closing)):
        if plain := reading.run(_PLAIN[quote]):
            write(_escaped(plain))
        elif (yield from reading.peek()) == "\\":
            write(_escaped((yield from _take_escape(reading))))
        else:
            # A quote that did not close, or nothing for now.
            write(_escaped(reading.take(len((yield from reading.peek())))))
    write('"')


def _closes(reading: Reading, closing: str) -> Script[bool]:
    if (yield from reading.accept(closing)):
        return True
    if not (yield from reading.peek()):
        raise AnswerEndedError
    return False


def _take_escape(reading: Reading) -> Script[str]:
    start = yield from reading.peek(2)
    if len(start) < 2:  # noqa: PLR2004  (a backslash and what it escapes)
        raise AnswerEndedError
    kind = start[1]
    if kind in _ESCAPES:
        reading.take(2)
        return _ESCAPES[kind]
    if kind in "\\'\"/":
        return reading.take(2)[1]
    if kind not in _HEX_DIGITS:
        return reading.take(2)
    return (yield from _take_code_point(reading, 2 + _HEX_DIGITS[kind]))


def _take_code_point(reading: Reading, length: int) -> Script[str]:
    escape = yield from reading.peek(length)
    if len(escape) < length:
        raise AnswerEndedError
    try:
        char = chr(int(f"0x{escape[2:]}", 0))
    except (ValueError, OverflowError):
        raise MalformedCallError from None
    reading.take(length)
    return char


def _escaped(text: str) -> str:
    """The inside of a JSON string; half of a surrogate pair stays an escape, which text cannot carry otherwise."""
    has_surrogates = any("\ud800" <= char <= "\udfff" for char in text) if not text.isascii() else False
    return json.dumps(text, ensure_ascii=has_surrogates)[1:-1]


def _pass_dictionary(reading: Reading, write: Write, depth: int) -> Script[None]:
    reading.take(1)
    write("{")
    separator = ""
    yield from reading.skip_space()
    while not (yield from reading.accept("}")):
        write(separator)
        separator = ", "
        if (yield from reading.peek()) not in ("'", '"'):
            raise reading.refusal()
        yield from pass_python_string(reading, write)
        yield from reading.skip_space()
        yield from reading.expect(":")
        write(": ")
        yield from reading.skip_space()
        yield from pass_python(reading, write, depth + 1)
        yield from skip_comma(reading, "}")
    write("}")


def _pass_sequence(reading: Reading, write: Write, depth: int) -> Script[None]:
    closer = _CLOSERS[reading.take(1)]
    write("[")
    separator = ""
    yield from reading.skip_space()
    while not (yield from reading.accept(closer)):
        write(separator)
        separator = ", "
        yield from pass_python(reading, write, depth + 1)
        yield from skip_comma(reading, closer)
    write("]")


def skip_comma(reading: Reading, closer: str) -> Script[None]:
    """Take the comma between two items, with the space around it; none is needed before the closer."""
    yield from reading.skip_space()
    if (yield from reading.peek()) != closer:
        yield from reading.expect(",")
        yield from reading.skip_space()
