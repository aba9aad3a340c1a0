"""Calls as JSON objects: `{"name": ..., "arguments": {...}}`, alone, in a row or in an array.

Trade: the reading of such objects for every dialect that has them, and the opening of answers that are one bare call.
It refuses to know markers. Arguments pass through as they are written; when they come before the name they wait for it,
like everything that may still turn out to be no call.
"""

from dataclasses import dataclass

from memra.chat.tool_dialects.json_text import pass_arguments, pass_value, read_string
from memra.chat.tool_dialects.reading import AnswerEndedError, MalformedCallError, Reading, Script
from memra.chat.tool_dialects.scripted_parser import ReadBlock, ReadOpening

_NAME_KEYS = frozenset({"name", "tool_name"})
_ARGUMENT_KEYS = frozenset({"arguments", "parameters"})


@dataclass(slots=True)
class _CallSoFar:
    name: str | None = None
    has_begun: bool = False
    arguments: str | None = None


def read_call(reading: Reading, *, is_bare: bool = False) -> Script[None]:
    """Take one object that is a call, up to its closing brace, and leave the call open.

    Args:
        reading: the answer.
        is_bare: nothing but the object shows that this is a call, so it has to be exactly a name and arguments, and
            it begins with the arguments.

    Raises:
        MalformedCallError: it is no call of a declared tool.
        AnswerEndedError: the answer ends inside it.
    """
    call = _CallSoFar()
    yield from reading.expect("{")
    yield from reading.skip_space()
    while True:
        yield from _read_member(reading, call, is_bare=is_bare)
        yield from reading.skip_space()
        if (yield from reading.accept("}")):
            break
        yield from reading.expect(",")
        yield from reading.skip_space()
    if not call.has_begun:
        raise MalformedCallError
    reading.has_whole_arguments = True


def _read_member(reading: Reading, call: _CallSoFar, *, is_bare: bool) -> Script[None]:
    key = yield from read_string(reading)
    yield from reading.skip_space()
    yield from reading.expect(":")
    yield from reading.skip_space()
    if key in _NAME_KEYS and call.name is None:
        call.name = yield from read_string(reading)
        if call.name not in reading.tools:
            raise MalformedCallError
        if not is_bare or call.arguments is not None:
            _begin(reading, call)
    elif key in _ARGUMENT_KEYS and call.arguments is None:
        yield from _read_arguments(reading, call)
    elif is_bare:
        raise MalformedCallError
    else:
        yield from pass_value(reading, _forget)


def _read_arguments(reading: Reading, call: _CallSoFar) -> Script[None]:
    if call.name is None:
        held: list[str] = []
        yield from pass_arguments(reading, held.append)
        call.arguments = "".join(held)
        return
    if not call.has_begun:
        if (yield from reading.peek()) not in ("", "{"):
            raise MalformedCallError
        _begin(reading, call)
    call.arguments = ""
    yield from pass_arguments(reading, reading.argue)
    reading.has_whole_arguments = True


def _begin(reading: Reading, call: _CallSoFar) -> None:
    reading.begin(call.name or "")
    reading.argue(call.arguments or "")
    call.has_begun = True


def _forget(text: str) -> None:
    """Members that no call needs (`id`, `type`) are checked and dropped."""


def reads_calls(*closers: str) -> ReadBlock:
    """A block of calls in a row, with or without commas and brackets, up to one of these closing markers.

    A block whose closing marker is missing ends with its last call.
    """

    def read_block(reading: Reading, _marker: str) -> Script[None]:
        yield from reading.skip_space()
        is_array = yield from reading.accept("[")
        yield from reading.skip_space()
        yield from read_call(reading)
        reading.end()
        while (yield from _goes_on(reading, is_array=is_array)):
            yield from read_call(reading)
            reading.end()
        yield from reading.close(closers)

    return read_block


def _goes_on(reading: Reading, *, is_array: bool) -> Script[bool]:
    """Whether another object follows; takes the commas, the brackets and the space up to it."""
    if is_array and (yield from reading.close(("]",))):
        return False
    yield from reading.skip_space()
    if (yield from reading.accept(",")) or (yield from reading.accept(";")):
        yield from reading.skip_space()
    return (yield from reading.peek()) == "{"


def opens_bare(*closers: str, may_repeat: bool = False) -> ReadOpening:
    """An answer that is one call and nothing else, but perhaps a closing marker that lost its opening one.

    The call ends with the answer; when text follows it was no call, and is shown as it was written.

    Args:
        closers: closing markers of the dialect.
        may_repeat: further calls may follow, after a semicolon or space.
    """

    def read_opening(reading: Reading) -> Script[None]:
        yield from read_call(reading, is_bare=True)
        while may_repeat and (yield from _goes_on(reading, is_array=False)):
            reading.end()
            yield from read_call(reading, is_bare=True)
        yield from reading.skip_space()
        yield from reading.accept_any(closers)
        yield from reading.skip_space()
        if (yield from reading.peek()):
            raise MalformedCallError
        raise AnswerEndedError

    return read_opening
