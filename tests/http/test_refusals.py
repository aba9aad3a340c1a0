"""What a malformed request gets: one sentence that names the place, as JSON, whatever the mistake."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio

Start = Callable[..., Awaitable[Any]]
CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f"}}


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}, fields]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        (message(role="robot", content="x"), "messages"),
        (message(role=1, content="x"), "messages"),
        (message(content="x"), "messages"),
        (message(role="user", content=3), "messages"),
        (message(role="user", content=[{"type": "image_url", "image_url": {}}]), "messages"),
        (message(role="user", content=[{"type": "text"}]), "messages"),
        (message(role="user", tool_calls=[{"function": {"name": "f"}}]), "messages"),
        (message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]), "messages"),
        (message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": "{"}}]), "messages"),
        (message(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": [1]}}]), "messages"),
        (message(role="assistant", tool_calls=[{"function": {}}]), "messages"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"min_p": -0.5}, "min_p"),
        ({"temperature": 100.5}, "temperature"),
        ({"temperature": 1e39}, "temperature"),
        ({"top_k": 2**31}, "top_k"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"frequency_penalty": 100.5}, "frequency_penalty"),
        ({"frequency_penalty": -1e300}, "frequency_penalty"),
        ({"presence_penalty": 1e39}, "presence_penalty"),
        ({"presence_penalty": -101}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 0.009}, "repetition_penalty"),
        ({"repetition_penalty": 101}, "repetition_penalty"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": "é" * 513}, "stop"),
        ({"stop": ["x" * 1024] * 5}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": list(range(17))}, "stop_token_ids"),
        ({"stop_token_ids": [2**31]}, "stop_token_ids"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options"),
        ({"user": "a\nb"}, "user"),
        ({"session_id": "x" * 257}, "session_id"),
        ({"cache_salt": "a b"}, "cache_salt"),
        ({"cache_salt": "x" * 65}, "cache_salt"),
        ({"n": 9}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": True, "logprobs": True}, "top_logprobs"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "2"}}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"01": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0661": 1}}, "logit_bias"),
        ({"logit_bias": {str(index): 1 for index in range(1025)}}, "logit_bias"),
        ({"response_format": "text"}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}}, "response_format"),
        ({"grammar": 1}, "grammar"),
        ({"regex": ["a"]}, "regex"),
        ({"grammar": 'start: "a"', "regex": "a"}, "regex"),
        ({"response_format": {"type": "json_object"}, "grammar": 'start: "a"'}, "grammar"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"function": {"name": ""}}]}, "tools"),
        ({"tools": ["f"]}, "tools"),
        ({"max_ctx": -1}, "max_ctx"),
        ({"max_ctx": "all"}, "max_ctx"),
        ({"timeout_ms": "soon"}, "timeout_ms"),
        ({"timeout_ms": 1000.5}, "timeout_ms"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"reasoning": {"effort": "extreme"}}, "reasoning"),
        ({"reasoning": {"max_tokens": 100}}, "reasoning"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"enable_thinking": "no"}, "enable_thinking"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)
async def test_a_bad_field_is_named(start: Start, fields: dict[str, Any], param: str):
    server = await start()
    reply = await server.chat(**fields)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["code"]) == (400, "invalid_request_error", None)
    assert error["param"] == param
    assert param in error["message"]
    assert error["message"].endswith(".")
    assert reply.headers["x-should-retry"] == "false"
    assert reply.headers["x-request-id"].startswith("chatcmpl-")
    assert server.house.requests == []


@pytest.mark.parametrize(
    "name", ["frequency_penalty", "presence_penalty", "temperature", "top_p", "repetition_penalty"]
)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
async def test_no_number_is_infinite(start: Start, name: str, value: str):
    server = await start()
    body = f'{{"model":"fake","messages":[{{"role":"user","content":"x"}}],"{name}":{value}}}'
    reply = await post_raw(server, body.encode())
    assert reply.status_code == 400
    assert server.house.requests == []


async def post_raw(server: Any, body: bytes, content_type: str | None = "application/json") -> httpx.Response:
    headers = {} if content_type is None else {"content-type": content_type}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(server.url + CHAT, content=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": }', r"byte 10"),
        (b'{"model":"\xff"}', "not valid JSON"),
        (b'{"model":"\\ud800"}', "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"{}", "`model` is required"),
        (b'{"model":"a","messages":[],"tools":[{"x":' + b"[" * 100_000, "nested too deeply"),
        (b'{"model":"a","messages":[{"role":1}]}', r"`messages\[0\].role`: expected `str`, got `int`"),
    ],
)
async def test_a_malformed_body_is_one_sentence(start: Start, body: bytes, words: str):
    reply = await post_raw(await start(), body)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert re.search(words, error["message"])


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_another_content_type_is_refused(start: Start, wire: Any, content_type: str | None):
    reply = await post_raw(await start(), json.dumps(wire.chat()).encode(), content_type)
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/vnd.x+json"])
async def test_json_under_another_name_is_accepted(start: Start, wire: Any, content_type: str):
    assert (await post_raw(await start(), json.dumps(wire.chat()).encode(), content_type)).status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_over_the_limit_is_413_even_for_a_sender_that_reads_late(start: Start, *, is_chunked: bool):
    server = await start(max_body_bytes=4096)
    size = 3 << 20

    async def pieces() -> Any:
        for _ in range(size >> 16):
            yield b" " * 65536

    content: Any = pieces() if is_chunked else b" " * size
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.post(server.url + CHAT, content=content, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
    assert "4096 bytes" in reply.json()["error"]["message"]


async def test_a_body_of_exactly_the_limit_is_taken(start: Start, wire: Any):
    body = json.dumps(wire.chat()).encode().ljust(4096)
    assert (await post_raw(await start(max_body_bytes=4096), body)).status_code == 200
    assert (await post_raw(await start(max_body_bytes=4096), body + b" ")).status_code == 413


async def test_a_large_body_is_decoded_whole(start: Start, wire: Any):
    text = "é" * (2 << 20)
    server = await start()
    reply = await server.chat(messages=[{"role": "user", "content": text}])
    assert reply.status_code == 200
    assert server.house.requests[0].prompt.messages[0]["content"] == text


async def test_a_body_that_does_not_arrive_is_408(start: Start, wire: Any):
    server = await start(body_timeout_s=0.05)
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat())[:-5])
        with trio.fail_after(2):
            answer = await wire.read_until(stream, b"}}")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"request_body_timeout"' in answer
    assert b"x-should-retry" not in answer.lower()


async def test_an_unknown_lane_is_refused(start: Start, wire: Any):
    server = await start()
    reply = await server.post(CHAT, wire.chat(), x_lane="express")
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_lane")
    assert "interactive, judge, harvest" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("authorization", "key"),
    [("Bearer mk-1", "mk-1"), ("bearer  mk-1", "mk-1"), ("Basic abc", None), ("Bearer", None), ("mk-1", None)],
)
async def test_only_a_bearer_token_is_a_key(start: Start, wire: Any, authorization: str, key: str | None):
    server = await start()
    await server.post(CHAT, wire.chat(), authorization=authorization)
    assert server.house.requests[0].api_key == key


async def test_a_broken_trace_does_not_fail_a_request(start: Start, wire: Any):
    server = await start()
    assert (await server.post(CHAT, wire.chat(), traceparent="00-zz")).status_code == 200
    assert server.house.requests[0].traceparent is None
