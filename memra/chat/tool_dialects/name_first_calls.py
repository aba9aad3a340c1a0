"""Calls as a name and then the JSON of the arguments, with markup around both.

Trade: the second half of such a call, for every dialect that has it. It refuses to know the markup.
"""

from collections.abc import Callable

from memra.chat.tool_dialects.json_text import pass_arguments
from memra.chat.tool_dialects.reading import Reading, Script


def read_arguments(reading: Reading, name: str) -> Script[None]:
    """Begin the call of a tool, take its arguments and end it.

    Raises:
        MalformedCallError: the tool is not declared, or its arguments are no JSON object.
        AnswerEndedError: the answer ends before they are complete.
    """
    yield from reading.skip_space()
    if (yield from reading.peek()) != "{":  # or the call would have begun, and its text be shown beside it
        raise reading.refusal("{")
    reading.begin(name)
    yield from pass_arguments(reading, reading.argue)
    reading.end()


def read_section(
    reading: Reading, *, is_open: bool, call_begin: str, end: str, read_call: Callable[[Reading], Script[None]]
) -> Script[None]:
    """Take all calls of a section, each behind a token of its own.

    Args:
        reading: behind the token that begins the section, or behind the one that begins its first call.
        is_open: the section has begun, and its first call has not.
        call_begin: begins a call.
        end: ends the section.
        read_call: takes one call, from behind the token that begins it.
    """
    if is_open:
        yield from reading.skip_space()
        yield from reading.expect(call_begin)
    yield from read_call(reading)
    yield from reading.skip_space()
    while (yield from reading.accept(call_begin)):
        yield from read_call(reading)
        yield from reading.skip_space()
    yield from reading.close((end,))
