from memra.chat.answer_reader import TextAnswerReader
from memra.chat.tokenizer import Tokenizer
from memra.messages.generation import EndRules
from memra.messages.prompt import AnswerPiece, AnswerReader

# 0 is a control token, 1 and 2 are words, 3 and 4 are the halves of an e with an acute accent.
PIECES = (b"", b" Hello", b"STOP", b"\xc3", b"\xa9")


def make_tokenizer(*, adds_space_prefix: bool = False) -> Tokenizer:
    return Tokenizer(
        tokens=("<end>", "\u2581Hello", "STOP", "<0xC3>", "<0xA9>"),
        pieces=PIECES,
        control_ids=frozenset({0}),
        eos_ids=frozenset({0}),
        bos_id=None,
        eos_id=0,
        prefix_ids=(),
        suffix_ids=(),
        adds_space_prefix=adds_space_prefix,
        _encoder=None,
    )


def test_it_is_the_reader_that_the_messages_promise():
    reader: AnswerReader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,))
    assert reader.read((1, 3)).text == " Hello"
    assert reader.read((4, 0)).text == "\u00e9"
    assert reader.finish() == AnswerPiece()
    assert not reader.is_stopped


def test_a_stop_string_ends_the_answer():
    reader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,), stop_strings=("oSTOP",))
    assert reader.read((1,)).text == " Hell"
    assert reader.read((2,)) == AnswerPiece()
    assert reader.is_stopped
    assert reader.read((1,)) == reader.finish() == AnswerPiece()


def test_what_was_held_back_comes_at_the_end():
    reader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,), stop_strings=("STOPS",))
    assert reader.read((2, 3)) == AnswerPiece()
    assert reader.finish().text == "STOP"
    assert not reader.is_stopped


def test_a_stop_string_may_be_completed_by_the_end():
    reader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,), stop_strings=("TOPX", "OP"))
    assert reader.read((2,)).text == "S"
    assert not reader.is_stopped
    assert reader.finish().text == "T"
    assert reader.is_stopped


def test_the_space_that_the_tokenizer_adds_is_dropped_after_a_control_token_only():
    tokenizer = make_tokenizer(adds_space_prefix=True)
    assert TextAnswerReader(tokenizer, prompt_ids=(1, 0)).read((1,)).text == "Hello"
    assert TextAnswerReader(tokenizer, prompt_ids=(0, 1)).read((1,)).text == " Hello"
    assert TextAnswerReader(tokenizer).read((1,)).text == "Hello"
    assert TextAnswerReader(make_tokenizer(), prompt_ids=(0,)).read((1,)).text == " Hello"


def test_a_token_is_spelled_without_being_read():
    reader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,))
    assert reader.read((3,)) == AnswerPiece()
    assert [reader.token_bytes(token_id) for token_id in range(6)] == [b"<end>", *PIECES[1:], b""]
    assert reader.read((4,)).text == "\u00e9"


def test_it_tells_how_much_of_what_it_read_is_not_shown():
    reader = TextAnswerReader(make_tokenizer(), prompt_ids=(1,), stop_strings=("STOPSTOP",))
    counts = []
    for token_id in (1, 3, 4, 2, 0, 1, 2, 2):
        reader.read((token_id,))
        counts.append((reader.num_read_bytes, reader.num_held_bytes))
    assert counts == [(6, 0), (7, 1), (8, 0), (12, 4), (12, 4), (18, 0), (22, 4), (26, 8)]
    assert reader.is_stopped


def test_no_stop_string_ends_an_answer_before_its_least_length():
    for cut in (1, 2, 3, 5):
        reader = TextAnswerReader(make_tokenizer(), stop_strings=("STOP",), ends=EndRules(min_new_tokens=2))
        ids = (2, 2, 1, 2, 1)
        text = "".join(reader.read(ids[start : start + cut]).text for start in range(0, 5, cut))
        assert text == "STOPSTOP Hello"
        assert reader.is_stopped


def test_control_tokens_show_by_their_names_where_that_is_asked_for():
    reader = TextAnswerReader(make_tokenizer(), ends=EndRules(shows_control=True))
    assert reader.read((1, 0, 1)).text == " Hello<end> Hello"
