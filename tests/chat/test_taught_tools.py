"""Tools that are told in words to a model whose template has no place for them."""

import json
from typing import Any

import pytest

from memra.chat.chat_format import ChatFormat
from memra.errors import InvalidRequestError
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import RenderPrompt
from memra.types import ModelName, RequestId
from tests.chat.grammar_models import make_vocabulary, speak

WITH_SYSTEM = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WITHOUT_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('no such turn') }}{% endif %}{% endfor %}" + WITH_SYSTEM
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 5}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("look", "tell")
]
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": str(index), "type": "function", "function": {"name": name, "arguments": '{"city": "Rome"}'}}
            for index, name in enumerate(("look", "tell"))
        ],
    },
    {"role": "tool", "tool_call_id": "0", "content": "19 degrees"},
    {"role": "tool", "tool_call_id": "1", "content": "told"},
]


def build(template: str, *, teaches_tools: bool = True) -> ChatFormat:
    return ChatFormat.build(make_vocabulary(chat_template=template), context_tokens=9000, teaches_tools=teaches_tools)


def render(chat_format: ChatFormat, messages: list[dict[str, Any]], **fields: Any) -> str:
    command = RenderPrompt(RequestId("r"), ModelName("m"), ChatPrompt(messages, **fields))
    return chat_format.tokenizer.decode(chat_format.render(command).prompt_ids)


def test_declarations_stand_in_a_system_message():
    hello = [{"role": "user", "content": "hi"}]
    told = render(build(WITH_SYSTEM), hello, tools=TOOLS)
    assert told.startswith("<system>You can call the tools below.")
    assert told.endswith("</system><user>hi</user><assistant>")
    assert all(json.dumps(tool["function"]) in told for tool in TOOLS)
    asked = render(build(WITH_SYSTEM), [{"role": "system", "content": "Be brief."}, *hello], tools=TOOLS)
    assert asked == told.replace("<system>", "<system>Be brief.\n\n")


def test_declarations_begin_the_users_first_turn_where_no_system_message_may_be():
    told = render(build(WITHOUT_SYSTEM), [{"role": "user", "content": "hi"}], tools=TOOLS)
    assert told.startswith("<user>You can call the tools below.")
    assert told.endswith("\n\nhi</user><assistant>")


@pytest.mark.parametrize("tools", [TOOLS, None])
def test_earlier_calls_and_their_results_are_told_in_words(tools: Any):
    told = render(build(WITHOUT_SYSTEM), CALLED, tools=tools)
    calls = "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "Rome"}}}}\n</tool_call>' for name in ("look", "tell")
    )
    results = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in ("19 degrees", "told"))
    assert told.endswith(f"Rome?</user><assistant>I look.\n{calls}</assistant><user>{results}</user><assistant>")
    assert ("You can call" in told) is bool(tools)


def test_calls_in_the_answer_are_read_and_may_be_forced():
    chat_format = build(WITH_SYSTEM)
    prompt = ChatPrompt([{"role": "user", "content": "hi"}], TOOLS, must_call=("tell",), is_single_call=True)
    rendered = chat_format.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt))
    assert rendered.constraint is not None
    said = speak(rendered.constraint, chat_format.tokenizer, seed=1).decode()
    ids = chat_format.tokenizer.encode(said, add_special=False, parse_special=False)
    piece = rendered.reader.read(ids)
    assert [call.name for call in piece.tool_calls if call.name] == ["tell"]
    assert piece.text == ""


def test_whoever_did_not_choose_it_gets_a_refusal_that_names_the_setting():
    with pytest.raises(InvalidRequestError, match="MEMRA_GENERIC_TOOLS") as refused:
        render(build(WITH_SYSTEM, teaches_tools=False), [{"role": "user", "content": "hi"}], tools=TOOLS)
    assert refused.value.param == "tools"


def test_a_chat_without_tools_is_as_ever():
    hello = [{"role": "user", "content": "hi"}]
    taught, plain = (render(build(WITH_SYSTEM, teaches_tools=teaches), hello) for teaches in (True, False))
    assert taught == plain == "<user>hi</user><assistant>"
