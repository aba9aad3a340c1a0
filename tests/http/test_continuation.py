"""Answers that go on with the assistant's last message: who asks for one, and what cannot be gone on with."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Start = Callable[..., Awaitable[Any]]

QUESTION = {"role": "user", "content": "Count."}
BEGUN = {"role": "assistant", "content": "One,"}
CALLED = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("fields", "goes_on", "opens"),
    [
        ({"messages": [QUESTION, BEGUN]}, False, True),
        ({"messages": [QUESTION, BEGUN], "continue_final_message": False}, False, True),
        ({"messages": [QUESTION, BEGUN], "continue_final_message": True}, True, True),
        ({"messages": [QUESTION, BEGUN], "continue_final_message": True, "add_generation_prompt": False}, True, False),
        ({"messages": [QUESTION, {**BEGUN, "prefix": True}]}, True, True),
        ({"messages": [QUESTION, {**BEGUN, "prefix": False}]}, False, True),
        ({"messages": [QUESTION], "add_generation_prompt": False}, False, False),
        ({"messages": [QUESTION], "add_generation_prompt": True}, False, True),
    ],
)
async def test_a_chat_goes_on_where_that_is_asked_for(
    start: Start, fields: dict[str, Any], *, goes_on: bool, opens: bool
):
    server = await start()
    assert (await server.chat(**fields)).status_code == 200
    prompt = server.house.requests[0].prompt
    assert (prompt.goes_on, prompt.add_generation_prompt) == (goes_on, opens)
    assert prompt.begun_text == ("One," if goes_on else None)
    assert all("prefix" not in message for message in prompt.messages)


async def test_what_was_begun_is_repeated_for_those_who_ask(start: Start):
    server = await start()
    for echo, messages in ((True, [QUESTION, BEGUN]), (False, [QUESTION, BEGUN]), (True, [QUESTION])):
        await server.chat(messages=messages, echo=echo, continue_final_message=len(messages) == 2)
    assert [request.wants_echo for request in server.house.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": [QUESTION], "continue_final_message": True}, "continue_final_message", "assistant's"),
        ({"messages": [{**QUESTION, "prefix": True}]}, "messages", "assistant's"),
        ({"messages": [{**BEGUN, "prefix": True}, QUESTION]}, "messages", "messages[0].prefix"),
        ({"messages": [CALLED], "continue_final_message": True}, "continue_final_message", "calls tools"),
        (
            {"messages": [BEGUN], "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "add_generation_prompt",
        ),
        ({"messages": [{**BEGUN, "prefix": True}], "regex": "a+"}, "regex", "begin afresh"),
        (
            {"messages": [BEGUN], "continue_final_message": True, "tools": [TOOL], "tool_choice": "required"},
            "tool_choice",
            "begin afresh",
        ),
    ],
)
async def test_what_cannot_be_gone_on_with_is_refused_by_name(
    start: Start, fields: dict[str, Any], param: str, words: str
):
    server = await start()
    reply = await server.chat(**fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert words in reply.json()["error"]["message"]
    assert server.house.requests == []


async def test_a_message_of_anthropics_whose_last_turn_is_the_assistants_is_gone_on_with(start: Start):
    server = await start()
    body: dict[str, Any] = {"model": "fake", "max_tokens": 8, "messages": [QUESTION, BEGUN]}
    blocks = [{"type": "text", "text": "One,"}]
    for messages in ([QUESTION, BEGUN], [QUESTION, {"role": "assistant", "content": blocks}], [QUESTION]):
        assert (await server.post("/v1/messages", {**body, "messages": messages})).status_code == 200
        assert (await server.post("/v1/messages/count_tokens", {**body, "messages": messages})).status_code == 200
    begun = ["One,", "One,", None]
    assert [request.prompt.begun_text for request in server.house.requests] == begun
    assert [asked.prompt.begun_text for asked in server.house.tokenized] == begun


async def test_a_message_of_anthropics_that_ends_with_a_call_is_refused(start: Start):
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    body = {"model": "fake", "max_tokens": 8, "messages": [QUESTION, {"role": "assistant", "content": [call]}]}
    reply = await (await start()).post("/v1/messages", body)
    assert (reply.status_code, "calls tools" in reply.json()["error"]["message"]) == (400, True)


async def test_tokens_are_those_of_the_prompt_that_would_be_gone_on_with(start: Start):
    server = await start()
    body = {"model": "fake", "messages": [QUESTION, BEGUN], "continue_final_message": True}
    assert (await server.post("/v1/tokenize", {**body, "add_special_tokens": True})).status_code == 200
    assert server.house.tokenized[0].prompt.goes_on
