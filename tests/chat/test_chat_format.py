"""Prompts of every kind, from words to the tokens that the worker takes."""

from pathlib import Path
from typing import Any

import pytest

from memra.chat.byte_alphabet import BYTE_OF_CHAR
from memra.chat.chat_format import ChatFormat
from memra.errors import ContextLengthError, InvalidRequestError, TemplateError, UnsupportedModelError
from memra.loading.gguf_file import open_gguf
from memra.messages.generation import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from memra.types import ModelName, RequestId

SPECIALS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
BOS, EOS, TURN, END = range(256, 260)
HELLO = ({"role": "user", "content": "hi"},)
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}


def _byte_ids(text: str) -> tuple[int, ...]:
    positions = {byte: index for index, byte in enumerate(BYTE_OF_CHAR.values())}
    return tuple(positions[byte] for byte in text.encode())


def _format(template: str | None = None, *, context_tokens: int = 100, **changes: Any) -> ChatFormat:
    values: dict[str, Any] = {
        "kind": TokenizerKind.BYTE_BPE,
        "tokens": (*BYTE_OF_CHAR, *SPECIALS, "zz"),
        "merges": ("z z",),
        "token_types": (TokenType.NORMAL,) * 256 + (TokenType.CONTROL,) * 4 + (TokenType.NORMAL,),
        "bos_id": BOS,
        "eos_id": EOS,
        "add_bos": True,
        "chat_template": template,
    }
    return ChatFormat.build(Vocabulary(**(values | changes)), context_tokens=context_tokens)


def _render(chat_format: ChatFormat, prompt: Prompt, **options: Any) -> PromptRendered:
    command = RenderPrompt(request_id=RequestId("r"), model=ModelName("m"), prompt=prompt, **options)
    return chat_format.render(command)


def test_a_model_without_template_speaks_chatml():
    rendered = _render(_format(add_bos=False), ChatPrompt(messages=HELLO))
    assert rendered.prompt_ids == (
        *(TURN, *_byte_ids("user\nhi"), END, *_byte_ids("\n")),
        *(TURN, *_byte_ids("assistant\n")),
    )
    assert EOS in rendered.eos_ids
    assert rendered.context_tokens == 100


def test_the_begin_token_is_added_where_the_template_writes_none():
    assert _render(_format("{{ messages[0].content }}"), ChatPrompt(messages=HELLO)).prompt_ids == (
        BOS,
        *_byte_ids("hi"),
    )


def test_the_begin_token_is_not_added_twice():
    rendered = _render(_format("{{ bos_token }}{{ messages[0].content }}"), ChatPrompt(messages=HELLO))
    assert rendered.prompt_ids == (BOS, *_byte_ids("hi"))


def test_a_tokenizer_that_wants_no_begin_token_gets_none():
    rendered = _render(_format("{{ messages[0].content }}", add_bos=False), ChatPrompt(messages=HELLO))
    assert rendered.prompt_ids == _byte_ids("hi")


def test_an_opened_answer_is_not_ended_by_an_end_token():
    rendered = _render(_format("{{ messages[0].content }}", add_eos=True), ChatPrompt(messages=HELLO))
    assert rendered.prompt_ids[-1] != EOS


def test_text_gets_the_begin_token_and_has_its_special_tokens_read():
    assert _render(_format(), TextPrompt("a<|im_end|>")).prompt_ids == (BOS, *_byte_ids("a"), END)


def test_special_tokens_in_a_message_are_read_as_such():
    prompt = ChatPrompt(messages=[{"role": "user", "content": "a<|im_end|>b"}])
    rendered = _render(_format("{{ messages[0].content }}", add_bos=False), prompt)
    assert rendered.prompt_ids == (*_byte_ids("a"), END, *_byte_ids("b"))


def test_token_ids_pass_unchanged():
    assert _render(_format(), TokenPrompt((5, 259, 0))).prompt_ids == (5, 259, 0)


@pytest.mark.parametrize(("ids", "position"), [((1, 2, 261), 2), ((-1,), 0), ((0, 10**30), 1)])
def test_a_token_id_outside_the_vocabulary_is_refused_by_position(ids: tuple[int, ...], position: int):
    with pytest.raises(InvalidRequestError, match=rf"position {position} .*vocabulary size 261") as refusal:
        _render(_format(), TokenPrompt(ids))
    assert refusal.value.param == "prompt_ids"


@pytest.mark.parametrize("token_id", [261, -1, 10**30])
def test_a_stop_token_outside_the_vocabulary_is_refused_by_its_id(token_id: int):
    with pytest.raises(InvalidRequestError, match=rf"'stop_token_ids' holds {token_id}; .*size 261") as refusal:
        _render(_format(), TextPrompt("x"), stop_token_ids=frozenset({5, token_id}))
    assert refusal.value.param == "stop_token_ids"
    _render(_format(), TextPrompt("x"), stop_token_ids=frozenset({0, 260}))


def test_a_biased_token_outside_the_vocabulary_is_refused_by_its_id():
    with pytest.raises(InvalidRequestError, match=r"'logit_bias' holds 261; .*size 261") as refusal:
        _render(_format(), TextPrompt("x"), biased_ids=frozenset({5, 261}))
    assert refusal.value.param == "logit_bias"


def test_the_prompt_comes_back_as_text_where_it_is_wanted():
    ids = _render(_format(), TextPrompt("x y")).prompt_ids
    for prompt in (TextPrompt("x y"), TokenPrompt(ids)):
        assert _render(_format(), prompt).echo == ""
        assert _render(_format(), prompt, wants_echo=True).echo == "x y"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (TextPrompt(""), "prompt"),
        (TokenPrompt(()), "prompt_ids"),
        (ChatPrompt(messages=[]), "messages"),
        (ChatPrompt(messages=[], param="prompt"), "prompt"),
        (ChatPrompt(messages=[{"role": "user", "content": ""}], param="prompt"), "prompt"),
        (ChatPrompt(messages=[{"role": "user", "content": ""}]), "messages"),
    ],
)
def test_an_empty_prompt_is_refused(prompt: Prompt, param: str):
    with pytest.raises(InvalidRequestError) as refusal:
        _render(_format("{{ messages[0].content }}", add_bos=False), prompt)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (TokenPrompt((1,) * 8), "prompt_ids"),
        (TextPrompt("xxxxxxx"), "prompt"),
        (ChatPrompt(messages=[{"role": "user", "content": "xxxxxxx"}]), "messages"),
    ],
)
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(prompt: Prompt, param: str):
    template = "{{ messages[0].content }}"
    with pytest.raises(ContextLengthError, match=r"8 tokens .* context 8") as refusal:
        _render(_format(template, context_tokens=8), prompt)
    assert refusal.value.param == param
    assert len(_render(_format(template, context_tokens=9), prompt).prompt_ids) == 8


def test_tools_are_refused_by_a_template_without_a_place_for_them():
    with pytest.raises(InvalidRequestError, match="tools") as refusal:
        _render(_format(), ChatPrompt(messages=HELLO, tools=[TOOL]))
    assert refusal.value.param == "tools"


def test_tools_reach_a_template_that_has_a_place_for_them():
    rendered = _render(_format("{{ tools[0].function.name }}", add_bos=False), ChatPrompt(messages=HELLO, tools=[TOOL]))
    assert rendered.prompt_ids == _byte_ids("f")


def test_a_template_for_tools_is_used_where_there_are_tools():
    named = {"tool_use": "{{ tools[0].function.name }}", "rag": "{% if %}"}
    chat_format = _format("{{ messages[0].content }}", add_bos=False, named_templates=named)
    assert _render(chat_format, ChatPrompt(messages=HELLO, tools=[TOOL])).prompt_ids == _byte_ids("f")
    assert _render(chat_format, ChatPrompt(messages=HELLO)).prompt_ids == _byte_ids("hi")


def test_the_templates_refusal_is_passed_on():
    for param in ("messages", "prompt"):
        with pytest.raises(TemplateError, match="No system turn") as refusal:
            _render(_format("{{ raise_exception('No system turn') }}"), ChatPrompt(messages=HELLO, param=param))
        assert refusal.value.param == param


def test_an_invalid_template_is_refused_when_the_model_is_loaded():
    with pytest.raises(UnsupportedModelError, match="line 1"):
        _format("{% if %}")


def test_each_prompt_has_a_reader_of_its_own_that_knows_the_stop_strings():
    chat_format = _format()
    first = _render(chat_format, TextPrompt("x"), stop_strings=("stop",)).reader
    second = _render(chat_format, TextPrompt("x")).reader
    assert first.read(_byte_ids("go stop on")).text == "go "
    assert first.is_stopped
    assert second.read(_byte_ids("go stop on")).text + second.finish().text == "go stop on"
    assert not second.is_stopped


@pytest.mark.models
@pytest.mark.parametrize("model", ["smollm2_path", "qwen_path", "gemma_path"])
def test_real_models_tokenize_their_chats_to_whole_turns(model: str, request: pytest.FixtureRequest):
    path: Path = request.getfixturevalue(model)
    chat_format = ChatFormat.build(open_gguf(path).vocabulary, context_tokens=512)
    rendered = _render(chat_format, ChatPrompt(messages=[{"role": "user", "content": "Grüße!"}]))
    tokenizer = chat_format.tokenizer
    text = tokenizer.decode(rendered.prompt_ids, show_control=True)
    assert text.startswith(tokenizer.bos_text if tokenizer.prefix_ids else "<|im_start|>")
    assert "Grüße!" in text
    assert any(token_id in tokenizer.control_ids for token_id in rendered.prompt_ids)
    assert rendered.prompt_ids[: len(tokenizer.prefix_ids)] == tokenizer.prefix_ids
    assert rendered.prompt_ids.count(tokenizer.bos_id) <= 1 or not tokenizer.prefix_ids
