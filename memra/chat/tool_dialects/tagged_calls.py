"""Calls between tags: a name, and each parameter with its value in tags of its own.

Trade: the reading of such calls for every dialect that has them. The tags are configuration; it refuses to know any.
Values carry no quotes, so the declared type decides what a value is: one that can only be a string is passed on while
it is written, any other when it is whole. Objects and arrays are JSON; where a dialect writes them as elements inside
the value, `nested_values` reads them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memra.chat.tool_dialects.declared_tools import coerce
from memra.chat.tool_dialects.nested_values import read_nested
from memra.chat.tool_dialects.reading import (
    NAME,
    AnswerEndedError,
    MalformedCallError,
    Reading,
    Script,
    Write,
    tokens_within,
)
from memra.chat.tool_dialects.scripted_parser import ReadBlock

_STRING = frozenset({"string"})


@dataclass(frozen=True, slots=True)
class Tags:
    """How one dialect writes a call; space may stand between all parts.

    Attributes:
        begin: stands before the name.
        after_name: stands behind it.
        end: ends the call.
        before_key: stands before a parameter's name.
        after_keys: what may stand behind it, each with what it says of the value: a string, no string, or nothing.
        before_value: stands before a value.
        after_value: stands behind it; `{key}` in it is the parameter's name.
        quotes: may stand around a value, whose text then is literal.
        before_element: stands before every tag inside a value that is no plain one; empty where all values are plain.
        has_line_breaks: one line break at each end of a value belongs to the format.
        lead: may stand before `begin`.
        trail: may stand behind `end`.
        outer: the markers around calls.
        has_outer_each: every call has them, and not all calls together.
    """

    begin: str
    after_name: str
    end: str
    before_key: str
    after_keys: tuple[tuple[str, bool | None], ...]
    after_value: str
    before_value: str = ""
    quotes: tuple[str, str] | None = None
    before_element: str = ""
    has_line_breaks: bool = False
    lead: str = ""
    trail: str = ""
    outer: tuple[str, str] = ("", "")
    has_outer_each: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """All that may be special tokens."""
        keys = [literal for literal, _ in self.after_keys]
        values = [self.before_key, *keys, self.before_value, self.after_value.partition("{key}")[0]]
        calls = [*self.outer, self.lead, self.begin, self.after_name, self.end, self.trail]
        return tuple(dict.fromkeys(token for text in (*calls, *values) for token in tokens_within(text)))

    def closing(self, key: str) -> str:
        """What stands behind the value of a parameter."""
        return self.after_value.replace("{key}", key)


def reads_tagged(tags: Tags, *, closers: Sequence[str] = ()) -> ReadBlock:
    """A block of calls in a row, up to one of these closing markers, which may be missing.

    The block's marker may be the beginning of its first call.
    """

    def read_block(reading: Reading, marker: str) -> Script[None]:
        if marker != tags.begin and not (yield from _begins(reading, tags)):
            raise reading.refusal(tags.begin)
        yield from _read_call(reading, tags)
        while (yield from _begins(reading, tags)):
            yield from _read_call(reading, tags)
        yield from reading.close(closers)

    return read_block


def _begins(reading: Reading, tags: Tags) -> Script[bool]:
    yield from reading.skip_space()
    if tags.lead and (yield from reading.accept(tags.lead)):
        yield from reading.skip_space()
    return (yield from reading.accept(tags.begin))


def _read_call(reading: Reading, tags: Tags) -> Script[None]:
    yield from reading.skip_space()
    name = yield from reading.word(NAME)
    yield from reading.expect(tags.after_name)
    if not tags.after_name and not (yield from reading.peek()):
        raise AnswerEndedError
    reading.begin(name)
    separator = "{"
    while not (yield from _ends(reading, tags)):
        reading.argue(separator)
        separator = ", "
        yield from _read_parameter(reading, tags, name)
    if separator != "{":
        reading.argue("}")
    reading.end()
    if tags.trail:
        yield from reading.close((tags.trail,))


def _ends(reading: Reading, tags: Tags) -> Script[bool]:
    """Whether the call ends here; otherwise the beginning of a parameter is taken."""
    yield from reading.skip_space()
    if (yield from reading.accept(tags.end)):
        return True
    if (yield from reading.accept(tags.before_key)):
        return False
    # Either may have begun when the answer ended.
    refusals = [reading.refusal(tags.end), reading.refusal(tags.before_key)]
    raise next((refusal for refusal in refusals if isinstance(refusal, AnswerEndedError)), refusals[0])


def _read_parameter(reading: Reading, tags: Tags, name: str) -> Script[None]:
    key = yield from reading.word(NAME)
    if not key:
        raise reading.refusal()
    is_string = yield from _read_after_key(reading, tags)
    if tags.before_value:
        yield from reading.skip_space()
        yield from reading.expect(tags.before_value)
    reading.argue(f"{json.dumps(key, ensure_ascii=False)}: ")
    types = reading.tools.types(name, key)
    is_quoted = tags.quotes is not None and (yield from reading.accept(tags.quotes[0]))
    end = tags.quotes[1] + tags.closing(key) if tags.quotes and is_quoted else tags.closing(key)
    if is_string or (is_string is None and types == _STRING):
        yield from _pass_string(reading, tags, end, reading.argue)
    elif tags.before_element:
        declared = reading.tools.parameter(name, key)
        reading.argue((yield from read_nested(reading, key, declared, lead=tags.before_element)))
    else:
        text = yield from reading.until(end)
        text = text.removeprefix("\n").removesuffix("\n") if tags.has_line_breaks else text
        reading.argue(coerce(text, types))


def _read_after_key(reading: Reading, tags: Tags) -> Script[bool | None]:
    for literal, is_string in tags.after_keys:
        if (yield from reading.accept(literal)):
            return is_string
    raise next(
        (
            refusal
            for literal, _ in tags.after_keys
            if isinstance(refusal := reading.refusal(literal), AnswerEndedError)
        ),
        MalformedCallError(),
    )


def _pass_string(reading: Reading, tags: Tags, end: str, write: Write) -> Script[None]:
    write('"')
    ends: tuple[str, ...] = (end,)
    if tags.has_line_breaks:
        yield from reading.accept("\n")
        ends = ("\n" + end, end)
    yield from reading.pass_until(ends, lambda text: write(json.dumps(text, ensure_ascii=False)[1:-1]))
    write('"')
