"""`POST /v1/responses`: what it asks of the house, and what it answers."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.errors import BusyError, EngineFaultError, OverloadedError, TemplateError
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
PATH = "/v1/responses"
USAGE = Usage(3, 2, 1, 0.25)
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
OPENING = ["response.created", "response.in_progress"]
TEXT = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
THOUGHT = [kind.replace("output_text", "reasoning_text") for kind in TEXT]
CALL = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]
THINKS = ReplyDelta("", (1,), reasoning="hm")
SAYS = ReplyDelta("hi", (2,))
CALLS = ReplyDelta("", (3,), tool_calls=(ToolCallDelta(0, '{"a":1}', "call_1", "f"),))
CALLS_AGAIN = ReplyDelta("", (4,), tool_calls=(ToolCallDelta(1, "{}", "call_2", "g"),))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "input": "hi", **fields}


async def asked(start: Start, **fields: Any) -> Any:
    server = await start()
    reply = await server.post(PATH, body(**fields))
    assert reply.status_code == 200, reply.text
    return server.house.requests[0]


async def test_a_response_has_the_openai_shape(start: Start):
    server = await start()
    reply = await server.post(PATH, body(instructions="be kind", metadata={"a": "b"}, max_output_tokens=9))
    answer = reply.json()
    assert reply.headers["x-request-id"] == answer["id"] == server.house.requests[0].request_id
    assert "request-id" not in reply.headers
    assert re.fullmatch(r"resp_[0-9a-f]{32}", answer["id"])
    assert isinstance(answer.pop("created_at"), int)
    hexes = answer.pop("id").removeprefix("resp_")
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert answer == {
        "object": "response",
        "status": "completed",
        "model": "fake",
        "output": [
            {"type": "message", "id": f"msg_{hexes}0", "status": "completed", "role": "assistant", "content": [part]}
        ],
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 5,
        },
        "error": None,
        "incomplete_details": None,
        "background": False,
        "instructions": "be kind",
        "max_output_tokens": 9,
        "max_tool_calls": None,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }


@pytest.mark.parametrize(
    ("script", "stop", "kinds"),
    [
        ([SAYS], StopCause.END_OF_SEQUENCE, [*TEXT, "response.completed"]),
        ([THINKS, SAYS], StopCause.END_OF_SEQUENCE, [*THOUGHT, *TEXT, "response.completed"]),
        ([CALLS, CALLS_AGAIN], StopCause.TOOL_CALLS, [*CALL, *CALL, "response.completed"]),
        ([CALLS, SAYS], StopCause.TOOL_CALLS, [*CALL, *TEXT, "response.completed"]),
        ([SAYS, CALLS], StopCause.TOOL_CALLS, [*TEXT, *CALL, "response.completed"]),
        ([SAYS], StopCause.STOP_TOKEN, [*TEXT, "response.completed"]),
        ([SAYS], StopCause.MAX_TOKENS, [*TEXT, "response.incomplete"]),
        ([SAYS], StopCause.CONTEXT_FULL, [*TEXT, "response.incomplete"]),
        ([], StopCause.END_OF_SEQUENCE, ["response.completed"]),
    ],
)
async def test_a_stream_has_openais_events_in_openais_order(
    start: Start, fake_house: Any, *, script: list[Any], stop: StopCause, kinds: list[str]
):
    server = await start(fake_house(script=script, finish=ReplyFinished(stop, USAGE)))
    whole = (await server.post(PATH, body())).json()
    reply = await server.post(PATH, body(stream=True))
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = [json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n") if line.startswith("data: ")]
    assert [event["type"] for event in events] == [*OPENING, *kinds]
    assert re.findall(r"^event: (.*)$", reply.text, re.MULTILINE) == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]["response"]
    assert f"response.{whole['status']}" == kinds[-1]
    assert _without_ids(whole) == _without_ids(last)


def _without_ids(response: dict[str, Any]) -> str:
    return re.sub(r"[0-9a-f]{32}", "", json.dumps({**response, "created_at": 0}))


async def test_an_answer_that_was_cut_says_why(start: Start, fake_house: Any):
    server = await start(fake_house(script=[CALLS], finish=ReplyFinished(StopCause.MAX_TOKENS, USAGE)))
    answer = (await server.post(PATH, body())).json()
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"


async def test_thoughts_and_calls_are_items_of_their_own(start: Start, fake_house: Any):
    server = await start(fake_house(script=[THINKS, CALLS], finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE)))
    thought, call = (await server.post(PATH, body())).json()["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert (call["call_id"], call["name"], call["arguments"]) == ("call_1", "f", '{"a":1}')


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFaultError("Broken."), "server_error"), (BusyError("Full."), "rate_limit_exceeded")]
)
async def test_a_failure_in_a_stream_is_a_failed_response(
    start: Start, fake_house: Any, wire: Any, error: Exception, code: str
):
    server = await start(fake_house(script=["Hel", error]))
    *_, last = wire.events((await server.post(PATH, body(stream=True))).text)
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": code, "message": error.message}
    assert last["response"]["output"][0]["content"][0]["text"] == "Hel"
    assert last["response"]["output"][0]["status"] == "incomplete"


async def test_a_failure_without_a_stream_is_a_plain_error(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Hel", OverloadedError("Too much.")]))
    reply = await server.post(PATH, body())
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")


async def test_an_answer_that_just_ends_is_a_plain_error(start: Start, fake_house: Any):
    server = await start(fake_house(finish=None))
    assert (await server.post(PATH, body())).status_code == 503


async def test_an_answer_that_its_deadline_cut_short_failed_with_what_there_is(start: Start, fake_house: Any):
    server = await start(fake_house(finish=ReplyFinished(StopCause.DEADLINE, USAGE)))
    answer = (await server.post(PATH, body())).json()
    assert (answer["status"], answer["error"]["code"]) == ("failed", "server_error")
    assert answer["output"][0]["content"][0]["text"] == "Hello"
    assert answer["usage"]["output_tokens"] == 2


async def test_the_fields_of_a_response_are_those_of_a_chat(start: Start):
    request = await asked(
        start,
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.25,
        seed=3,
        prompt_cache_key="talk",
        reasoning={"effort": "low", "summary": "auto"},
        tools=[TOOL],
        tool_choice="auto",
        store=False,
        background=False,
        truncation="disabled",
        include=["reasoning.encrypted_content"],
        service_tier="auto",
        text={"format": {"type": "text"}, "verbosity": "low"},
    )
    assert request.max_new_tokens == 7
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0.5, 0.25, 3)
    assert request.affinity == "talk"
    assert request.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "low"}
    function = {name: TOOL[name] for name in ("name", "description", "parameters", "strict")}
    assert list(request.prompt.tools) == [{"type": "function", "function": function}]
    assert (request.is_stream, request.may_reuse_answer, request.prompt.param) == (False, False, "input")


async def test_items_become_the_messages_of_a_chat(start: Start):
    request = await asked(
        start,
        instructions="be kind",
        input=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": ""},
            {"type": "function_call_output", "call_id": "call_1", "output": "1"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "2"}]},
        ],
    )
    system, user, assistant, *results = request.prompt.messages
    assert system == {"role": "system", "content": "be kind\n\nbe brief"}
    assert user == {"role": "user", "content": "a\nb"}
    assert (assistant["role"], assistant["content"]) == ("assistant", "so")
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": 1}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert results == [
        {"role": "tool", "content": "1", "tool_call_id": "call_1"},
        {"role": "tool", "content": "2", "tool_call_id": "call_2"},
    ]


async def test_a_response_can_be_sent_back_as_it_came(start: Start, fake_house: Any):
    server = await start(fake_house(script=[THINKS, SAYS, CALLS], finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE)))
    output = (await server.post(PATH, body())).json()["output"]
    result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "1"}
    again = await server.post(PATH, body(input=[{"role": "user", "content": "hi"}, *output, result]))
    assert again.status_code == 200
    _, assistant, tool = server.house.requests[1].prompt.messages
    assert (assistant["content"], assistant["tool_calls"][0]["id"], tool["tool_call_id"]) == ("hi", "call_1", "call_1")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"temperature": 1e9}, "temperature"),
        ({"reasoning": {"effort": "immense"}}, "reasoning"),
        ({"prompt_cache_key": "x" * 300}, "prompt_cache_key"),
        ({"tools": [{"type": "file_search"}]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "namespace", "tools": []}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": 1}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}]}, "tools"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"input": []}, "input"),
        ({"input": 1}, "input"),
        ({"input": [{"role": "judge", "content": ""}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input"),
        ({"input": [{"type": "function_call", "name": "f", "call_id": "c", "arguments": "{"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(start: Start, fields: dict[str, Any], param: str):
    server = await start()
    reply = await server.post(PATH, body(**fields))
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert f"`{param}" in error["message"]
    assert not server.house.requests


async def test_a_template_that_refuses_names_the_input(start: Start, fake_house: Any):
    server = await start(fake_house(refusal=TemplateError("No.", param="input")))
    assert (await server.post(PATH, body())).json()["error"]["param"] == "input"
