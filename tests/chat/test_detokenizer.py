from hypothesis import given
from hypothesis import strategies as st

from memra.chat.detokenizer import Detokenizer

# One token per byte, then some that hold several, and one without any.
PIECES = (*(bytes([value]) for value in range(256)), b"", b" Hello", "\U0001f680".encode()[:3], b"\x80!")


def test_half_a_character_is_held_back_until_it_is_whole():
    words = Detokenizer(PIECES)
    first, *middle, last = "\U0001f680".encode()
    assert words.push((first,)) == ""
    assert words.push(middle) == ""
    assert words.push((last, ord("!"))) == "\U0001f680!"
    assert words.num_held_bytes == 0


def test_broken_bytes_become_one_replacement_character():
    words = Detokenizer(PIECES)
    assert words.push((0xE2, 0x82)) == ""
    assert words.push((ord("a"),)) == "\ufffda"
    assert words.push((0xFF,)) == "\ufffd"
    assert words.push((0xF0, 0x9F)) == ""
    assert words.num_held_bytes == 2


def test_a_token_may_end_one_character_and_begin_the_next():
    words = Detokenizer(PIECES)
    assert words.push((258,)) == ""
    assert words.push((259,)) == "\U0001f680!"


def test_tokens_without_bytes_show_nothing():
    words = Detokenizer(PIECES)
    assert words.push((256, ord("a"), 256)) == "a"
    assert words.push((9999, ord("b"))) == "b"
    assert words.push(()) == ""


def test_the_first_space_is_dropped_only_when_nobody_meant_it():
    assert Detokenizer(PIECES).push((257,)) == " Hello"
    words = Detokenizer(PIECES, drop_first_space=True)
    assert words.push((256,)) == ""
    assert words.push((257, 257)) == "Hello Hello"
    assert words.push((257,)) == " Hello"
    words = Detokenizer(PIECES, drop_first_space=True)
    assert words.push((ord("a"), 257)) == "a Hello"


@given(st.binary(max_size=40), st.lists(st.integers(1, 5)))
def test_any_cut_gives_the_text_of_the_whole(data: bytes, sizes: list[int]):
    words, text, start = Detokenizer(PIECES), "", 0
    for size in [*sizes, len(data)]:
        text += words.push(data[start : start + size])
        start += size
    whole = data[: len(data) - words.num_held_bytes]
    assert text == whole.decode(errors="replace")
    assert len(data) - len(whole) <= 3
    assert whole == data or "\ufffd" in data[len(whole) :].decode(errors="replace")
