"""`POST /v1/chat/completions`: what it asks of the house, and what it answers."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import pytest
import trio

from memra.messages.generation import ChatPrompt, ReplyDelta, ReplyFinished, Usage
from memra.types import CacheStatus, Lane, StopCause

Start = Callable[..., Awaitable[Any]]
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "completion_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
    "elapsed_s": 0.25,
}


async def test_a_chat_completion_has_the_openai_shape(start: Start):
    server = await start()
    reply = await server.chat()
    body = reply.json()
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", body["id"])
    assert reply.headers["x-request-id"] == body["id"] == server.house.requests[0].request_id
    assert isinstance(body.pop("created"), int)
    del body["id"]
    message = {"role": "assistant", "content": "Hello"}
    assert body == {
        "object": "chat.completion",
        "model": "fake",
        "system_fingerprint": "memra-test-000000000000",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
        "memra_cache": "skip",
    }


@pytest.mark.parametrize("cache", CacheStatus)
async def test_a_collected_answer_tells_whether_it_was_computed(start: Start, fake_house: Any, cache: CacheStatus):
    house = fake_house(finish=ReplyFinished(StopCause.MAX_TOKENS, Usage(1, 1, 0, 0.1), cache))
    assert (await (await start(house)).chat()).json()["memra_cache"] == cache.value


async def test_only_a_collected_answer_may_be_one_that_was_computed_before(start: Start):
    server = await start()
    for fields in ({}, {"stream": None}, {"stream": False}, {"stream": True}):
        assert ("memra_cache" in (await server.chat(**fields)).text) is not fields.get("stream", False)
    await server.post("/v1/completions", {"model": "fake", "prompt": "hi"})
    assert [request.may_reuse_answer for request in server.house.requests] == [True, True, True, False, False]


async def test_the_house_is_told_who_chose_the_seed_and_the_salt(start: Start):
    server = await start()
    for fields in ({}, {"seed": None, "cache_salt": None}, {"seed": 0, "cache_salt": "s"}):
        await server.chat(**fields)
        await server.post("/v1/completions", {"model": "fake", "prompt": "hi", **fields})
    told = [(request.has_seed, request.cache_salt) for request in server.house.requests]
    assert told == [(False, "")] * 4 + [(True, "s")] * 2


async def test_the_slot_is_free_before_the_answer_is_seen(start: Start):
    server = await start()
    await server.chat()
    assert server.house.num_open == 0


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopCause.END_OF_SEQUENCE, "stop"),
        (StopCause.STOP_STRING, "stop"),
        (StopCause.STOP_TOKEN, "stop"),
        (StopCause.MAX_TOKENS, "length"),
        (StopCause.CONTEXT_FULL, "length"),
    ],
)
async def test_finish_reasons_are_openais(start: Start, fake_house: Any, stop: StopCause, reason: str):
    server = await start(fake_house(finish=ReplyFinished(stop, Usage(1, 1, 0, 0.1))))
    assert (await server.chat()).json()["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(("remaining", "reset"), [(3, "0"), (0, "2")])
async def test_slot_headers_tell_the_limit(start: Start, fake_house: Any, remaining: int, reset: str):
    server = await start(fake_house(slots_remaining=remaining))
    for stream in (False, True):
        headers = (await server.chat(stream=stream)).headers
        names = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
        assert [headers[name] for name in names] == ["4", str(remaining), reset]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_an_earlier_answers_reasoning_is_kept_under_either_name(start: Start, name: str):
    server = await start()
    answer = {"role": "assistant", "content": "4", name: "2 + 2"}
    await server.chat(messages=[{"role": "user", "content": "?"}, answer, {"role": "user", "content": "sure?"}])
    (request,) = server.house.requests
    assert request.prompt.messages[1] == {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}


async def test_messages_reach_the_house_in_openais_shape(start: Start):
    server = await start()
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}},
        {"function": {"name": "g", "arguments": {"x": [1]}}},
        {"function": {"name": "h", "arguments": ""}},
    ]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"text": "two"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "ok", "tool_call_id": "call_1"},
    ]
    assert (await server.chat(messages=messages)).status_code == 200
    prompt = server.house.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    system, user, assistant, tool = prompt.messages
    assert system == {"role": "system", "content": "be brief"}
    assert user == {"role": "user", "content": "one\ntwo", "name": "ann"}
    assert assistant.pop("tool_calls") == [
        calls[0],
        {"type": "function", "function": {"name": "g", "arguments": '{"x":[1]}'}},
        {"type": "function", "function": {"name": "h", "arguments": "{}"}},
    ]
    assert assistant == {"role": "assistant", "content": None}
    assert tool == {"role": "tool", "content": "ok", "tool_call_id": "call_1"}
    assert prompt.param == "messages"


async def test_tools_reach_the_house_in_the_clients_order(start: Start):
    server = await start()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}]
    assert (await server.chat(tools=tools, tool_choice="auto", parallel_tool_calls=True)).status_code == 200
    assert list(server.house.requests[0].prompt.tools[0]["function"]["parameters"]) == ["z", "a"]


async def test_sampling_reaches_the_house(start: Start):
    server = await start()
    sampling = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "frequency_penalty": 0.1,
        "presence_penalty": -0.2,
        "repetition_penalty": 1.1,
        "seed": 0,
    }
    assert (await server.chat(**sampling)).status_code == 200
    others = {"logit_bias": (), "num_top_logprobs": None}
    assert asdict(server.house.requests[0].sampling) == sampling | others


async def test_limits_and_stops_reach_the_house(start: Start):
    server = await start()
    reply = await server.chat(
        model="org/other", max_tokens=7, max_completion_tokens=9, stop=["a", "", "b"], stop_token_ids=[5, 6]
    )
    assert reply.status_code == 200
    request = server.house.requests[0]
    assert (request.model, request.max_new_tokens) == ("org/other", 9)
    assert (request.stop_strings, request.stop_token_ids) == (("a", "b"), frozenset({5, 6}))


async def test_headers_reach_the_house(start: Start, wire: Any):
    server = await start()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"authorization": "Bearer key", "x_lane": "judge", "traceparent": trace}
    assert (await server.post("/v1/chat/completions", wire.chat(), **headers)).status_code == 200
    request = server.house.requests[0]
    assert (request.lane, request.identity.principal, request.traceparent) == (Lane.JUDGE, "key", trace)


async def test_what_changes_nothing_is_taken(start: Start):
    server = await start()
    reply = await server.chat(
        user="ann",
        session_id="s",
        cache_salt="a-Z_0.+/=",
        n=1,
        logprobs=False,
        response_format={"type": "text"},
        service_tier="auto",
        metadata={"x": "y"},
        store=True,
        no_such_field={"x": 1},
    )
    assert reply.status_code == 200


async def test_what_is_left_out_or_null_means_the_default(start: Start):
    server = await start()
    names = ["temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options", "n", "tools", "tool_choice"]
    names += ["parallel_tool_calls", "reasoning_effort", "reasoning", "include_reasoning", "enable_thinking"]
    names += ["chat_template_kwargs", "max_ctx", "timeout_ms"]
    await server.chat()
    await server.chat(**dict.fromkeys(names))
    for request in server.house.requests:
        assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (1.0, 1.0, 0)
        assert (request.max_new_tokens, request.stop_strings, request.prompt.tools) == (None, (), None)
        assert request.prompt.template_options == {}
        assert (request.lane, request.identity.principal, request.traceparent) == (Lane.INTERACTIVE, None, None)


async def test_every_request_without_a_seed_gets_its_own(start: Start):
    server = await start()
    for _ in range(3):
        await server.chat()
    assert len({request.sampling.seed for request in server.house.requests}) == 3


async def test_tool_choice_none_hides_the_tools(start: Start):
    server = await start()
    await server.chat(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="none")
    assert server.house.requests[0].prompt.tools is None


async def test_zero_tokens_are_a_legal_limit(start: Start):
    server = await start()
    await server.chat(max_tokens=0)
    assert server.house.requests[0].max_new_tokens == 0


async def test_a_client_that_leaves_cancels_a_collected_answer(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=[trio.Event()]))
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat()))
        await server.house.opened.wait()
    with trio.fail_after(1):
        await server.house.freed.wait()
    assert server.house.num_open == 0


async def test_a_failure_before_the_end_is_a_plain_error(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Hel"], finish=None))
    reply = await server.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")


async def test_joined_deltas_and_held_back_tokens_make_one_text(start: Start, fake_house: Any):
    script = [ReplyDelta("", (1,)), ReplyDelta("é", (2, 3)), ReplyDelta("😀\u2028\n", (4,))]
    server = await start(fake_house(script=script))
    assert (await server.chat()).json()["choices"][0]["message"]["content"] == "é😀\u2028\n"
