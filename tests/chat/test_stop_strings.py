import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.chat.stop_strings import MAX_STOP_STRINGS, StopStrings
from memra.errors import InvalidRequestError

short_text = st.text(alphabet="ab", max_size=12)
stop_lists = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


def cut_at_earliest(text: str, stops: list[str]) -> str:
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts, default=len(text))]


def test_text_ends_before_the_stop_string():
    text = StopStrings(("STOP",))
    assert text.push("one STOP two") == "one "
    assert text.is_stopped
    assert text.push("three") == ""
    assert text.flush() == ""


def test_a_possible_beginning_is_held_back():
    text = StopStrings(("STOP",))
    assert text.push("one ST") == "one "
    assert not text.is_stopped
    assert text.push("ART") == "START"
    assert text.push("ST") == ""
    assert text.flush() == "ST"
    assert not text.is_stopped


def test_a_stop_string_may_come_in_pieces():
    text = StopStrings(("\n\n",))
    assert [text.push(char) for char in "a\nb\n\nc"] == ["a", "", "\nb", "", "", ""]
    assert text.is_stopped


def test_a_longer_stop_string_that_begins_first_wins_when_it_is_completed():
    text = StopStrings(("abcd", "c"))
    assert text.push("xabc") == "x"
    assert not text.is_stopped
    assert text.push("d") == ""
    assert text.is_stopped
    assert text.flush() == ""


def test_the_shorter_one_ends_the_text_when_the_longer_one_breaks_off():
    text = StopStrings(("abcd", "c"))
    assert text.push("xabc") + text.push("e") == "xab"
    assert text.is_stopped


def test_the_shorter_one_ends_the_text_when_nothing_more_comes():
    text = StopStrings(("abcd", "c", "bc"))
    assert text.push("xabc") + text.flush() == "xa"
    assert text.is_stopped


def test_without_stop_strings_everything_is_certain():
    text = StopStrings(())
    assert text.push("anything") == "anything"
    assert text.flush() == ""


def test_empty_and_too_many_stop_strings_are_refused():
    with pytest.raises(InvalidRequestError, match="empty") as refusal:
        StopStrings(("a", ""))
    assert refusal.value.param == "stop"
    with pytest.raises(InvalidRequestError, match="at most 16"):
        StopStrings(("a",) * (MAX_STOP_STRINGS + 1))


@given(st.lists(short_text, max_size=8), stop_lists)
def test_any_cut_of_any_text_ends_at_the_earliest_stop(parts: list[str], stops: list[str]):
    text, shown = StopStrings(stops), ""
    whole = "".join(parts)
    expected = cut_at_earliest(whole, stops)
    for part in parts:
        shown += text.push(part)
        assert expected.startswith(shown)
    shown += text.flush()
    assert shown == expected
    assert text.is_stopped == any(stop in whole for stop in stops)


@given(st.lists(short_text, max_size=8), stop_lists)
def test_no_more_is_held_back_than_the_longest_stop_string_needs(parts: list[str], stops: list[str]):
    text, pushed, shown = StopStrings(stops), 0, 0
    for part in parts:
        shown += len(text.push(part))
        pushed += len(part)
        assert text.is_stopped or pushed - shown < max(map(len, stops), default=1)


@given(whole=short_text, stops=stop_lists, num_first=st.integers(0, 12))
def test_the_one_that_is_told_does_not_depend_on_the_cut(whole: str, stops: list[str], num_first: int):
    text = StopStrings(stops)
    text.push(whole[:num_first])
    text.push(whole[num_first:])
    text.flush()
    places = [(whole.find(stop), len(stop), stop) for stop in stops if stop in whole]
    assert text.found == (min(places)[2] if places else None)


def test_a_stop_string_may_be_shown_and_nothing_behind_it():
    text = StopStrings(("STOP",), is_shown=True)
    assert text.push("one STOP two") == "one STOP"
    assert (text.is_stopped, text.found, text.num_held_bytes) == (True, "STOP", len(" two"))
    ended_by_the_end = StopStrings(("TOPX", "OP"), is_shown=True)
    assert ended_by_the_end.push("TOP") + ended_by_the_end.flush() == "TOP"
    assert ended_by_the_end.found == "OP"


def test_while_it_is_off_no_stop_string_begins():
    text = StopStrings(("STOP",))
    text.is_on = False
    assert text.push("STOP ST") == "STOP ST"
    text.is_on = True
    assert text.push("OP STOP") == "OP "
    assert text.is_stopped
