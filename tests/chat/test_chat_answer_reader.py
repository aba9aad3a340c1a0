"""Thoughts, text and calls read from the tokens of one answer."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memra.actors.logprob_queue import LogprobQueue
from memra.chat.answer_reader import ChatAnswerReader
from memra.chat.call_reader import CallReader
from memra.chat.chat_format import ChatFormat
from memra.chat.detokenizer import Detokenizer
from memra.chat.reasoning import find_thought_style
from memra.chat.tool_dialects.harmony import HarmonyDialect
from memra.chat.tool_dialects.hermes import HermesDialect
from memra.loading.gguf_file import open_gguf
from memra.messages.generation import ChatPrompt, EndRules, TokenLogprob, join_calls
from memra.messages.prompt import AnswerPiece, AnswerReader, RenderPrompt
from memra.types import ModelName, RequestId

BYTES = tuple(bytes([byte]) for byte in range(256))
QWEN = "{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}"
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "tell")
)
LOOK = '<tool_call>\n{"name": "look", "arguments": {"at": "the é 😀"}}\n</tool_call>'
TELL = '<tool_call>\n{"name": "tell", "arguments": {}}\n</tool_call>'


def open_reader(
    *,
    prompt: str = "",
    has_tools: bool = True,
    is_single: bool = False,
    stops: tuple[str, ...] = (),
    ends: EndRules | None = None,
) -> ChatAnswerReader:
    style = find_thought_style(QWEN)
    assert style is not None
    return ChatAnswerReader(
        Detokenizer(BYTES),
        BYTES.__getitem__,
        splitter=style.splitter(prompt, has_tools=has_tools),
        calls=CallReader(HermesDialect().open(TOOLS), is_single=is_single) if has_tools else None,
        stop_strings=stops,
        ends=ends or EndRules(),
    )


def join(pieces: list[AnswerPiece]) -> AnswerPiece:
    return AnswerPiece(
        "".join(piece.text for piece in pieces),
        "".join(piece.reasoning for piece in pieces),
        join_calls(call for piece in pieces for call in piece.tool_calls),
    )


def read(reader: AnswerReader, text: str) -> AnswerPiece:
    """Read an answer byte by byte, as the reply does token by token."""
    pieces = []
    for byte in text.encode():
        pieces.append(reader.read((byte,)))
        if reader.is_stopped:
            return join(pieces)
    return join([*pieces, reader.finish()])


def said(piece: AnswerPiece) -> tuple[str, str, list[tuple[str | None, str]]]:
    return piece.reasoning, piece.text, [(call.name, call.arguments) for call in piece.tool_calls]


def test_thoughts_text_and_calls_are_told_apart():
    reader = open_reader()
    piece = read(reader, f"<think>\nhm\n</think>\n\nLet me see.\n{LOOK}\n{TELL}")
    thought, text, calls = said(piece)
    assert (thought, text.strip()) == ("hm", "Let me see.")
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("look", {"at": "the é 😀"}),
        ("tell", {}),
    ]
    assert [call.index for call in piece.tool_calls] == [0, 1]
    assert (reader.has_calls, reader.is_stopped) == (True, False)


@pytest.mark.parametrize(
    ("answer", "num_thinking"),
    [("<think>a</think>b", len("<think>a</think>") - len("<think") - 1), ("a<think>", 0), ("<think>ab", 3)],
)
def test_it_tells_while_it_is_thinking(answer: str, num_thinking: int):
    reader = open_reader()
    states = []
    for byte in answer.encode():
        reader.read((byte,))
        states.append(reader.is_thinking)
    assert sum(states) == num_thinking


def test_a_stop_string_counts_behind_the_least_length_alone():
    reader = open_reader(stops=("STOP",), ends=EndRules(min_new_tokens=9, shows_stop_string=True))
    assert said(read(reader, "STOP it, STOP it")) == ("", "STOP it, STOP", [])


def test_every_call_has_an_id_of_its_own():
    ids = {call.call_id for _ in range(50) for call in read(open_reader(), LOOK + TELL).tool_calls}
    assert len(ids) == 100
    assert all(call_id is not None and call_id.startswith("call_") for call_id in ids)


def test_the_name_and_the_id_come_once():
    reader = open_reader()
    deltas = [delta for byte in LOOK.encode() for delta in reader.read((byte,)).tool_calls]
    assert [delta.name for delta in deltas].count("look") == 1
    assert all((delta.name is None) == (delta.call_id is None) for delta in deltas)
    assert deltas[0].name == "look"
    assert len(deltas) > 3, "arguments come while they are written"


def test_a_call_inside_a_thought_is_part_of_the_thought():
    reader = open_reader(prompt="<think>\n")
    assert said(read(reader, f"maybe {LOOK}\n</think>\n\nNo.")) == (f"maybe {LOOK}", "No.", [])
    assert not reader.has_calls


def test_without_tools_a_call_is_text():
    assert said(read(open_reader(has_tools=False), LOOK)) == ("", LOOK, [])


def test_the_answer_ends_with_its_first_call_where_one_is_wanted():
    reader = open_reader(is_single=True)
    _, text, calls = said(read(reader, LOOK + "and" + TELL))
    assert (text, [name for name, _ in calls]) == ("", ["look"])
    assert (reader.has_calls, reader.is_stopped) == (True, True)
    assert reader.read(tuple(b"more")) == reader.finish() == AnswerPiece()


def test_all_tokens_at_once_end_with_the_first_call_too():
    reader = open_reader(is_single=True)
    _, text, calls = said(join([reader.read(tuple((LOOK + "and" + TELL).encode()))]))
    assert (text, len(calls)) == ("", 1)


def test_a_call_that_was_cut_is_none_that_was_read():
    reader = open_reader()
    assert said(read(reader, LOOK[:-20]))[2][0][0] == "look"
    assert not reader.has_calls


@pytest.mark.parametrize(
    ("answer", "stops", "expected"),
    [
        ("<think>STOP</think>aSTOPb", ("STOP",), ("STOP", "a", [])),
        ("<think>a</think>bSTO", ("STOP",), ("a", "bSTO", [])),
        ("<think>STO</think>Pb", ("STOP",), ("STO", "Pb", [])),
        (f"STO{TELL}P", ("STOP",), ("", "STOP", [("tell", "{}")])),
        (f"aST{TELL}", ("STOP", "ST"), ("", "a", [])),
        (TELL, ("tell", "{}", "<tool_call>"), ("", "", [("tell", "{}")])),
        (f"{TELL}STOP{LOOK}", ("STOP",), ("", "", [("tell", "{}")])),
    ],
)
def test_stop_strings_are_looked_for_in_the_text_alone(answer: str, stops: tuple[str, ...], expected: object):
    assert said(read(open_reader(stops=stops), answer)) == expected


WORDS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "\n",
        "a",
        "é",
        "😀",
        "e\u0301",
        "\u05d0\u05d1",
        "日本",
        "STOP",
        "ST",
        LOOK,
        TELL,
        "<tool_call>",
        "<",
    ]
)


@given(st.lists(WORDS, max_size=8).map("".join), st.sampled_from(["", "<think>\n"]), st.data())
def test_a_streamed_answer_is_the_whole_one(answer: str, prompt: str, data: st.DataObject):
    raw = answer.encode()
    stops = data.draw(st.sampled_from([(), ("STOP",), ("STOP", "日")]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    whole_reader, cut_reader = open_reader(prompt=prompt, stops=stops), open_reader(prompt=prompt, stops=stops)
    whole = join([whole_reader.read(tuple(raw)), whole_reader.finish()])
    parts = [cut_reader.read(tuple(raw[a:b])) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert said(join([*parts, cut_reader.finish()])) == said(whole)
    assert said(read(open_reader(prompt=prompt, stops=stops), answer)) == said(whole)
    assert (cut_reader.has_calls, cut_reader.is_stopped) == (whole_reader.has_calls, whole_reader.is_stopped)
    assert "\ufffd" not in whole.text + whole.reasoning
    assert not any(stop in whole.text for stop in stops) or whole.tool_calls


@pytest.fixture(scope="module")
def qwen_format(qwen_path: Path) -> ChatFormat:
    return ChatFormat.build(open_gguf(qwen_path).vocabulary, context_tokens=4096)


def open_qwen(chat_format: ChatFormat, stops: tuple[str, ...]) -> AnswerReader:
    prompt = ChatPrompt(({"role": "user", "content": "hi"},), tools=TOOLS)
    return chat_format.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt, stop_strings=stops)).reader


@pytest.mark.models
@settings(max_examples=60)
@given(data=st.data())
def test_real_tokens_make_the_same_answer_however_they_come(qwen_format: ChatFormat, data: st.DataObject):
    tokenizer = qwen_format.tokenizer
    answer = data.draw(st.lists(WORDS, max_size=8).map("".join))
    stops = data.draw(st.sampled_from([(), ("STOP",)]))
    ids = list(tokenizer.encode(answer, add_special=False, parse_special=True))
    for place in data.draw(st.lists(st.integers(0, len(ids)), max_size=3)):
        ids.insert(place, data.draw(st.sampled_from(sorted(tokenizer.control_ids))))
    whole_reader, reader = open_qwen(qwen_format, stops), open_qwen(qwen_format, stops)
    whole = join([whole_reader.read(tuple(ids)), whole_reader.finish()])
    pieces = [reader.read((token_id,)) for token_id in ids]
    assert said(join([*pieces, reader.finish()])) == said(whole)
    assert not any(tokenizer.tokens[token_id] in whole.text for token_id in tokenizer.control_ids)
    if all(ord(char) < 128 for char in answer):
        assert "\ufffd" not in whole.text


HARMONY = '{{ "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}'
HARMONY_ANSWER = (
    "<|channel|>analysis<|message|>hm<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>First I look.<|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"at": "é"}'
)


@pytest.mark.parametrize("end", ["", "<|call|>"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_harmony_answer_is_read_channel_by_channel(end: str, size: int):
    style = find_thought_style(HARMONY)
    assert style is not None
    reader = ChatAnswerReader(
        Detokenizer(BYTES),
        BYTES.__getitem__,
        splitter=style.splitter("<|start|>assistant", has_tools=True),
        calls=CallReader(HarmonyDialect().open(TOOLS)),
    )
    raw = (HARMONY_ANSWER + end).encode()
    pieces = [reader.read(tuple(raw[at : at + size])) for at in range(0, len(raw), size)]
    assert said(join([*pieces, reader.finish()])) == ("hm", "First I look.", [("look", '{"at": "é"}')])
    assert (reader.has_calls, reader.is_stopped) == (True, False)


def test_bytes_are_held_until_something_is_told():
    reader = open_reader(has_tools=False, stops=("STOP",))
    counts = []
    for byte in b"\n<think>a</think>bSTOP":
        reader.read((byte,))
        counts.append(reader.num_held_bytes)
    assert counts == [*range(1, 9), 0, *range(1, 9), 0, *range(1, 5)]
    assert reader.num_read_bytes == len(counts)
    assert reader.token_bytes(65) == b"A"


def test_log_probabilities_are_those_of_thoughts_text_and_calls_alike():
    reader = open_reader()
    queue = LogprobQueue(reader)
    answer = f"<think>\nhm\n</think>\n\nLook:\n{LOOK}\n{TELL}".encode()
    told = []
    for byte in answer:
        reader.read((byte,))
        queue.note(TokenLogprob(byte, -1.0))
        told += queue.take()
    reader.finish()
    queue.end()
    told += queue.take()
    assert bytes(entry.token_id for entry in told) == answer
