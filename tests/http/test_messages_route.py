"""`POST /v1/messages` and `/v1/messages/count_tokens`: what they ask of the house, and what they answer."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra import errors
from memra.http.errors import SHAPES
from memra.http.wire.messages_answer import STOP_REASONS
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USAGE = Usage(3, 2, 1, 0.25)
SHOWN = {"input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1, "output_tokens": 2}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
BLOCK = ["content_block_start", "content_block_delta", "content_block_stop"]
FIRST = ["content_block_start", "ping", "content_block_delta", "content_block_stop"]
FIRST_THOUGHT = ["content_block_start", "ping", *["content_block_delta"] * 2, "content_block_stop"]
END = ["message_delta", "message_stop"]
THINKS = ReplyDelta("", (1,), reasoning="hm")
SAYS = ReplyDelta("hi", (2,))
CALLS = ReplyDelta("", (3,), tool_calls=(ToolCallDelta(0, '{"a":1}', "call_1", "f"),))
CALLS_AGAIN = ReplyDelta("", (4,), tool_calls=(ToolCallDelta(1, "{}", "call_2", "g"),))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}], **fields}


async def asked(start: Start, **fields: Any) -> Any:
    server = await start()
    reply = await server.post(PATH, body(**fields))
    assert reply.status_code == 200, reply.text
    return server.house.requests[0]


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]


async def test_a_message_has_anthropics_shape(start: Start):
    server = await start()
    reply = await server.post(PATH, body(), anthropic_version="2023-06-01", x_api_key="secret")
    answer = reply.json()
    request = server.house.requests[0]
    assert reply.headers["request-id"] == reply.headers["x-request-id"] == answer["id"] == request.request_id
    assert re.fullmatch(r"msg_[0-9a-f]{32}", answer.pop("id"))
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": SHOWN,
    }
    assert (request.identity.principal, request.max_new_tokens) == ("secret", 16)


async def test_a_bearer_token_is_a_key_too(start: Start, fake_house: Any):
    server = await start(fake_house(valid_key="secret"))
    for path in (PATH, COUNT):
        assert (await server.post(path, body(), authorization="Bearer secret")).status_code == 200
        assert (await server.post(path, body(), x_api_key="secret")).status_code == 200
        refused = await server.post(path, body(), x_api_key="guess")
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize(
    ("script", "stop", "kinds"),
    [
        ([SAYS], StopCause.END_OF_SEQUENCE, FIRST),
        ([THINKS, SAYS], StopCause.END_OF_SEQUENCE, [*FIRST_THOUGHT, *BLOCK]),
        ([CALLS, CALLS_AGAIN], StopCause.TOOL_CALLS, [*FIRST, *BLOCK]),
        ([CALLS, SAYS], StopCause.TOOL_CALLS, [*FIRST, *BLOCK]),
        ([SAYS, CALLS], StopCause.TOOL_CALLS, [*FIRST, *BLOCK]),
        ([SAYS], StopCause.MAX_TOKENS, FIRST),
        ([SAYS], StopCause.STOP_STRING, FIRST),
        ([], StopCause.END_OF_SEQUENCE, []),
    ],
)
async def test_a_stream_has_anthropics_events_in_anthropics_order(
    start: Start, fake_house: Any, *, script: list[Any], stop: StopCause, kinds: list[str]
):
    server = await start(fake_house(script=script, finish=ReplyFinished(stop, USAGE)))
    reply = await server.post(PATH, body(stream=True))
    events = events_of(reply.text)
    assert [event["type"] for event in events] == ["message_start", *kinds, *END]
    assert re.findall(r"^event: (.*)$", reply.text, re.MULTILINE) == [event["type"] for event in events]
    message = events[0]["message"]
    assert message["id"] == reply.headers["request-id"]
    assert (message["content"], message["usage"]) == ([], {**SHOWN, "output_tokens": 0})
    assert events[-2]["delta"] == {"stop_reason": STOP_REASONS[stop], "stop_sequence": None}
    assert events[-2]["usage"] == SHOWN


async def test_blocks_hold_thoughts_text_and_calls(start: Start, fake_house: Any):
    script = [THINKS, SAYS, CALLS]
    server = await start(fake_house(script=script, finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE)))
    answer = (await server.post(PATH, body())).json()
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
    ]


async def test_the_deltas_of_blocks_have_types_of_their_own(start: Start, fake_house: Any):
    script = [THINKS, SAYS, CALLS]
    server = await start(fake_house(script=script, finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE)))
    events = events_of((await server.post(PATH, body(stream=True))).text)
    deltas = [(event["index"], event["delta"]) for event in events if event["type"] == "content_block_delta"]
    assert deltas == [
        (0, {"type": "thinking_delta", "thinking": "hm"}),
        (0, {"type": "signature_delta", "signature": ""}),
        (1, {"type": "text_delta", "text": "hi"}),
        (2, {"type": "input_json_delta", "partial_json": '{"a":1}'}),
    ]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert blocks[2] == {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}


async def test_a_call_that_was_cut_has_no_input(start: Start, fake_house: Any):
    cut = ReplyDelta("", (3,), tool_calls=(ToolCallDelta(0, '{"a":', "call_1", "f"),))
    server = await start(fake_house(script=[cut], finish=ReplyFinished(StopCause.MAX_TOKENS, USAGE)))
    answer = (await server.post(PATH, body())).json()
    assert (answer["content"][0]["input"], answer["stop_reason"]) == ({}, "max_tokens")


@pytest.mark.parametrize(
    ("sequences", "told", "shown"),
    [(["x"], None, "x"), (["x", "y"], "y", "y"), (["x", "y"], None, None)],
)
async def test_the_stop_sequence_that_ended_an_answer_is_named(
    start: Start, fake_house: Any, *, sequences: list[str], told: str | None, shown: str | None
):
    server = await start(fake_house(finish=ReplyFinished(StopCause.STOP_STRING, USAGE, stop_string=told)))
    answer = (await server.post(PATH, body(stop_sequences=sequences))).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", shown)
    assert server.house.requests[0].stop_strings == tuple(sequences)


async def test_an_answer_that_its_deadline_cut_short_has_an_error_beside_it(start: Start, fake_house: Any):
    server = await start(fake_house(finish=ReplyFinished(StopCause.DEADLINE, USAGE)))
    answer = (await server.post(PATH, body())).json()
    assert (answer["content"][0]["text"], answer["stop_reason"]) == ("Hello", None)
    assert answer["error"]["type"] == "timeout_error"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.EngineFaultError("Broken."), "api_error"),
        (errors.OverloadedError("Too much."), "overloaded_error"),
        (errors.BusyError("Full."), "rate_limit_error"),
    ],
)
async def test_a_failure_in_a_stream_is_an_error_event(start: Start, fake_house: Any, error: Exception, kind: str):
    server = await start(fake_house(script=["Hel", error]))
    reply = await server.post(PATH, body(stream=True))
    assert reply.text.endswith("\n\n")
    assert events_of(reply.text)[-1] == {"type": "error", "error": {"type": kind, "message": error.message}}
    assert "event: error\n" in reply.text


KNOWN_TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "billing_error",
    "not_found_error",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
    "request_too_large",
}


@pytest.mark.parametrize("kind", list(SHAPES), ids=lambda kind: kind.__name__)
async def test_a_refusal_has_anthropics_shape(start: Start, fake_house: Any, kind: type[errors.RequestError]):
    server = await start(fake_house(refusal=kind("One sentence.", param="model")))
    for path in (PATH, COUNT):
        reply = await server.post(path, body())
        answer = reply.json()
        statuses = {"not_found_error": 404, "overloaded_error": 529}
        assert reply.status_code == statuses.get(answer["error"]["type"], SHAPES[kind].status)
        assert answer["error"].pop("type") in KNOWN_TYPES
        request_id = reply.headers["request-id"]
        assert answer == {"type": "error", "error": {"message": "One sentence."}, "request_id": request_id}


async def test_what_is_wrong_before_a_body_is_read_has_anthropics_shape_too(start: Start):
    server = await start()
    wrong_method = await server.get(PATH)
    assert (wrong_method.status_code, wrong_method.json()["type"]) == (405, "error")
    unknown = await server.post(f"{PATH}/batches", {})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    elsewhere = await server.post("/v1/messages_of_others", {})
    assert "type" not in elsewhere.json()


async def test_the_fields_of_a_message_are_those_of_a_chat(start: Start):
    request = await asked(
        start,
        system=[
            {"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "kind"},
        ],
        temperature=0.5,
        top_p=0.25,
        top_k=4,
        tools=[TOOL],
        tool_choice={"type": "auto"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "max"},
        metadata={"user_id": "me"},
        service_tier="auto",
    )
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0.5, 0.25, 4)
    assert request.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "high"}
    assert list(request.prompt.messages) == [
        {"role": "system", "content": "be\nkind"},
        {"role": "user", "content": "hi"},
    ]
    function = {"name": "f", "description": "d", "parameters": TOOL["input_schema"]}
    assert list(request.prompt.tools) == [{"type": "function", "function": function}]
    assert request.affinity == "me"


async def test_a_client_may_forbid_thoughts_and_tools(start: Start):
    request = await asked(start, thinking={"type": "disabled"}, tools=[TOOL], tool_choice={"type": "none"})
    assert request.prompt.template_options == {"enable_thinking": False}
    assert request.prompt.tools is None


async def test_a_user_id_that_names_nothing_here_is_left_out(start: Start):
    assert (await asked(start, metadata={"user_id": "x" * 999})).affinity is None


async def test_blocks_become_the_messages_of_a_chat(start: Start):
    request = await asked(
        start,
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "1"}]},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": "no", "is_error": True},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    )
    user, assistant, *results, last = request.prompt.messages
    assert user == {"role": "user", "content": "a\nb"}
    assert (assistant["role"], assistant["content"]) == ("assistant", "so")
    assert [(call["id"], call["function"]) for call in assistant["tool_calls"]] == [
        ("call_1", {"name": "f", "arguments": '{"a":1}'}),
        ("call_2", {"name": "g", "arguments": "{}"}),
    ]
    assert results == [
        {"role": "tool", "content": "1", "tool_call_id": "call_1"},
        {"role": "tool", "content": "Error: no", "tool_call_id": "call_2"},
    ]
    assert last == {"role": "user", "content": "go on"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "judge", "content": ""}]}, "messages[0].role"),
        (user({"type": "image", "source": {}}), "messages[0].content[0]"),
        (user({"type": "document", "source": {}}), "messages[0].content[0]"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({"type": "tool_result", "content": ""}), "messages[0].content[0].tool_use_id"),
        (
            user({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}),
            "messages[0].content[0].content[0]",
        ),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"stop_sequences": ["x"] * 99}, "stop_sequences"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temperature": 1e9}, "temperature"),
        ({"output_config": {"effort": "immense"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "x"}, "container"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(start: Start, fields: dict[str, Any], named: str):
    server = await start()
    reply = await server.post(PATH, body(**fields))
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert f"`{named}`" in error["message"]
    assert not server.house.requests


async def test_max_tokens_is_required(start: Start):
    server = await start()
    fields = body()
    del fields["max_tokens"]
    reply = await server.post(PATH, fields)
    assert reply.json()["error"] == {"type": "invalid_request_error", "message": "`max_tokens` is required."}
    assert (await server.post(COUNT, fields)).json() == {"input_tokens": 3}


async def test_what_is_counted_is_the_prompt_of_the_message(start: Start):
    server = await start()
    fields = {"system": "be kind", "tools": [TOOL], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    reply = await server.post(COUNT, body(**fields))
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    await server.post(PATH, body(**fields))
    (counted,), (answered,) = server.house.tokenized, server.house.requests
    assert counted.prompt == answered.prompt
    assert counted.request_id == reply.headers["request-id"]
