"""How a template's model answers: thoughts, calls, and tokens that show or stay hidden."""

from typing import Any

import pytest

from memra.chat.byte_alphabet import BYTE_OF_CHAR
from memra.chat.chat_format import ChatFormat
from memra.errors import InvalidRequestError
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import AnswerPiece, AnswerReader, RenderPrompt
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from memra.types import ModelName, RequestId

SPECIALS = ("<|im_start|>", "<|im_end|>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "<|other|>")
HELLO = ({"role": "user", "content": "hi"},)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
TURNS = (
    "{% for t in tools or () %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}[THINK]{{ m.reasoning_content }}[/THINK]{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or () %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
OPENED = TURNS + "{% if enable_thinking is not defined or enable_thinking %}[THINK]{% else %}[THINK][/THINK]{% endif %}"
ALWAYS = TURNS + "[THINK]"


def make_format(template: str) -> ChatFormat:
    vocabulary = Vocabulary(
        kind=TokenizerKind.BYTE_BPE,
        tokens=(*BYTE_OF_CHAR, *SPECIALS, "zz"),
        merges=("z z",),
        token_types=(TokenType.NORMAL,) * 256 + (TokenType.CONTROL,) * len(SPECIALS) + (TokenType.NORMAL,),
        eos_id=257,
        chat_template=template,
    )
    return ChatFormat.build(vocabulary, context_tokens=4096)


def read(chat_format: ChatFormat, answer: str, **prompt: Any) -> tuple[str, str, int]:
    command = RenderPrompt(RequestId("r"), ModelName("m"), ChatPrompt(HELLO, **prompt))
    reader: AnswerReader = chat_format.render(command).reader
    ids = chat_format.tokenizer.encode(answer, add_special=False, parse_special=True)
    pieces: list[AnswerPiece] = [reader.read((token_id,)) for token_id in ids] + [reader.finish()]
    calls = [call for piece in pieces for call in piece.tool_calls if call.name == "look"]
    return "".join(piece.reasoning for piece in pieces), "".join(piece.text for piece in pieces), len(calls)


def test_markers_that_are_tokens_reach_the_readers_and_other_tokens_stay_hidden():
    answer = f"[THINK]hm<|other|>[/THINK]yes<|other|> <|im_start|>no{CALL}"
    assert read(make_format(TURNS), answer, tools=(TOOL,)) == ("hm", "yes no", 1)


def test_a_marker_without_its_other_half_never_shows():
    assert read(make_format(TURNS), "a[/THINK]b") == ("", "ab", 0)


def test_markers_of_calls_stay_hidden_where_nothing_may_be_called():
    assert read(make_format(TURNS), "yes<tool_call>no") == ("", "yesno", 0)


def test_a_prompt_may_open_the_thought_and_close_it():
    chat_format = make_format(OPENED)
    assert read(chat_format, "hm[/THINK]yes") == ("hm", "yes", 0)
    assert read(chat_format, "yes", template_options={"enable_thinking": False}) == ("", "yes", 0)


def test_thinking_that_cannot_be_turned_off_is_refused_by_name():
    chat_format = make_format(ALWAYS)
    with pytest.raises(InvalidRequestError, match="makes it think before every answer") as refused:
        read(chat_format, "", template_options={"enable_thinking": False})
    assert refused.value.param == "enable_thinking"
    assert read(chat_format, "hm") == ("hm", "", 0)


def test_an_answer_that_is_wanted_plain_has_no_parts():
    assert read(make_format(OPENED), "hm<|other|>[/THINK]yes", is_plain_answer=True) == ("", "hmyes", 0)


def test_a_plain_answer_may_come_from_a_model_that_always_thinks():
    off = {"enable_thinking": False}
    assert read(make_format(ALWAYS), "hm", is_plain_answer=True, template_options=off) == ("", "hm", 0)


def test_a_template_without_tools_has_no_dialect():
    assert make_format("{% for m in messages %}{{ m.content }}{% endfor %}").style.dialect is None


def test_markers_of_calls_show_where_the_template_leaves_earlier_calls_out():
    silent = TURNS[: TURNS.index("{% for c in")] + TURNS[TURNS.index("<|im_end|>\n{% endfor %}") :]
    chat_format = make_format("{# <tool_call> #}" + silent)
    assert read(chat_format, f"yes<|other|>{CALL}", tools=(TOOL,)) == ("", "yes", 1)
