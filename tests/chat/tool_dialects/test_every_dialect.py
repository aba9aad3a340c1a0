"""What holds for every dialect: nothing depends on the cuts, no byte is lost, arguments are whole."""

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memra.chat.tool_dialects.contract import MAX_HELD_CHARS, ArgumentsPiece, CallBegun, CallEnded, TextPiece
from tests.chat.tool_dialects.written_answers import TOOLS, WRITTEN, Written, calls_of, read, text_of

_EVERY = pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
_CASES = settings(max_examples=25, deadline=None, derandomize=True, database=None)

_HARD = "a\"'\\\n\t ,:;=()[]{}<>|/é日🙂\u0301אx1-_"
_WORDS = st.text(st.sampled_from(_HARD), max_size=12)
# XML dialects cannot tell a line break of the format from one of the value, or space around a number.
# Gemma cannot write its own quotes.
_STRINGS = _WORDS.map(str.strip).filter(lambda text: '<|"|>' not in text)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(10**12), 10**12)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": _STRINGS,
        "days": st.integers(-(10**9), 10**9),
        "share": _NUMBERS,
        "is_exact": st.booleans(),
        "tags": st.lists(_STRINGS, max_size=3),
        "options": st.dictionaries(st.text("abc_", min_size=1, max_size=3), _VALUES, max_size=3),
    },
)
_CALLS = st.lists(
    st.tuples(st.sampled_from([tool["function"]["name"] for tool in TOOLS]), _ARGUMENTS), min_size=1, max_size=3
)
_PROSE = st.text(st.sampled_from('abc <>|[]{}\n."日🙂_'), max_size=20)


def _cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


@_EVERY
@given(data=st.data(), calls=_CALLS, before=_PROSE)
@_CASES
def test_calls_are_read_whole_however_the_answer_is_cut(written: Written, data: st.DataObject, calls, before) -> None:
    calls = written.sayable(calls)
    answer = "x" + before + "." + written.write(calls)
    whole = read(written.dialect, [answer])
    assert calls_of(whole) == calls
    assert text_of(whole) == "x" + before + "."
    assert read(written.dialect, list(answer)) == whole
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=8))
    assert read(written.dialect, _cut(answer, cuts)) == whole


@_EVERY
def test_an_answer_cut_in_two_at_every_place_is_read_alike(written: Written) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_weather", {"city": 'Pa"r\\i\ns 🙂', "days": 3, "options": {"a": [1, None, True, "x"]}}),
        ("now", {}),
    ]
    calls = written.sayable(calls)
    answer = "Let me see.\n" + written.write(calls)
    whole = read(written.dialect, [answer])
    assert calls_of(whole) == calls
    assert text_of(whole).strip() == "Let me see."
    for at in range(len(answer)):
        assert read(written.dialect, [answer[:at], answer[at:]]) == whole


@_EVERY
@given(data=st.data(), calls=_CALLS)
@_CASES
def test_a_broken_answer_is_read_alike_however_it_is_cut_and_loses_no_byte(
    written: Written, data: st.DataObject, calls
) -> None:
    answer = written.write(calls)
    at = data.draw(st.integers(0, len(answer)))
    num_gone = data.draw(st.integers(0, 6))
    broken = "." + answer[:at] + data.draw(_PROSE) + answer[at + num_gone :]
    whole = read(written.dialect, [broken])
    assert read(written.dialect, list(broken)) == whole
    if not any(isinstance(piece, CallEnded) for piece in whole) and isinstance(whole[-1], TextPiece):
        assert text_of(whole) == broken
    for _name, arguments in calls_of(whole):
        assert isinstance(arguments, dict)


@_EVERY
@given(text=st.data())
@_CASES
def test_prose_that_mentions_markers_is_shown_as_it_is(written: Written, text: st.DataObject) -> None:
    mention = st.sampled_from([marker[:end] for marker in written.markers for end in range(1, len(marker) + 1)])
    parts = text.draw(st.lists(mention | st.text("ab .\n`日", max_size=5), max_size=8))
    prose = "The " + "".join(parts) + " marks a call."
    whole = read(written.dialect, [prose])
    assert whole == [TextPiece(prose)]
    assert read(written.dialect, list(prose)) == whole


@_EVERY
def test_a_call_of_an_undeclared_tool_is_shown_as_text(written: Written) -> None:
    answer = "Well: " + written.write([("get_weather", {"city": "Rome"})]).replace("get_weather", "drop_tables")
    assert read(written.dialect, [answer]) == [TextPiece(answer)]
    assert read(written.dialect, list(answer)) == [TextPiece(answer)]


@_EVERY
def test_a_call_without_arguments_has_an_empty_object(written: Written) -> None:
    assert read(written.dialect, list(written.write([("now", {})]))) == [
        CallBegun("now"),
        ArgumentsPiece("{}"),
        CallEnded(),
    ]


@_EVERY
def test_a_cut_off_call_never_ends_and_repeats_nothing(written: Written) -> None:
    answer = "Hm. " + written.write([("get_weather", {"city": "abcdefgh"})])
    pieces = read(written.dialect, list(answer[: answer.index("efgh")]))
    assert pieces[:2] == [TextPiece("Hm."), CallBegun("get_weather")]
    assert not any(isinstance(piece, CallEnded) for piece in pieces)
    assert text_of(pieces) == "Hm."


@_EVERY
def test_names_and_string_arguments_come_while_they_are_written(written: Written) -> None:
    answer = written.write([("get_weather", {"city": "abcdefgh" * 50})])
    parser = written.dialect.open(TOOLS)
    num_arguments_pieces = 0
    seen = ""
    for char in answer:
        for piece in parser.feed(char):
            if isinstance(piece, ArgumentsPiece):
                num_arguments_pieces += 1
                seen += piece.text
    assert num_arguments_pieces > 300
    assert json.loads(seen) == {"city": "abcdefgh" * 50}


@_EVERY
def test_no_more_than_the_limit_is_held_back(written: Written) -> None:
    """Whatever follows a marker, text comes out again as soon as the limit is reached."""
    for marker in written.markers:
        for filler in (" ", "a", '{"a":', "[", "<", "x=", "\n"):
            parser = written.dialect.open(TOOLS)
            text = "." + marker + filler * 2000
            shown = "".join(text_of(parser.feed(char)) for char in text)
            assert len(text) - len(shown) <= MAX_HELD_CHARS + len(marker) + len(filler), (marker, filler)
            assert shown + text_of(parser.finish()) == text


@_EVERY
def test_text_between_and_after_calls_is_kept(written: Written) -> None:
    first, second = (written.write([call]) for call in (("now", {}), ("search", {"city": "x"})))
    if not re.search(r"\W\Z", first):
        pytest.skip("the dialect has no end of a call")
    pieces = read(written.dialect, list(f"One. {first} Two. {second}"))
    assert calls_of(pieces) == [("now", {}), ("search", {"city": "x"})]
    assert text_of(pieces) == "One. Two."
