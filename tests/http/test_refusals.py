"""What a malformed request gets: one sentence that names the place, as JSON, whatever the mistake."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from memra.http.request_body import _longest
from memra.http.wire.nesting import MAX_DEPTH
from memra.http.wire.prompt_size import MAX_PROMPT_BYTES
from memra.settings import HttpSettings

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
        ({"regex": "a", "guided_regex": "b"}, "guided_regex"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[1]"}, "guided_json"),
        ({"guided_json": '{"a":' * 200 + "1" + "}" * 200}, "guided_json"),
        ({"json_schema": True}, "json_schema"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice"),
        ({"structured_outputs": {"json": 1}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
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


async def test_a_compressed_body_is_refused(start: Start, wire: Any):
    server = await start()
    for encoding, status in (("gzip", 415), ("identity", 200)):
        reply = await server.post(CHAT, wire.chat(), content_encoding=encoding)
        assert reply.status_code == status
    assert (
        "Content-Encoding" in (await server.post(CHAT, wire.chat(), content_encoding="br")).json()["error"]["message"]
    )


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


async def test_a_body_that_pauses_is_408(start: Start, wire: Any):
    server = await start(body_idle_s=0.1)
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat())[:-5])
        with trio.fail_after(3):
            answer = await wire.read_until(stream, b"}}")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":"request_body_timeout"' in answer
    assert b"Nothing of the request body came for 0.1 s." in answer


async def test_a_body_that_comes_in_small_pieces_is_waited_for(start: Start, wire: Any):
    server = await start(body_idle_s=0.5)
    data = wire.post(wire.chat())
    async with await server.connect() as stream:
        await stream.send_all(data[:-20])
        for at in range(len(data) - 20, len(data)):
            await trio.testing.wait_all_tasks_blocked(0.03)  # 0.6 s in all
            await stream.send_all(data[at : at + 1])
        with trio.fail_after(3):
            assert (await wire.read_until(stream, b"elapsed_s")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("num_bytes", "longest_s"), [(0, 90.0), (2 << 20, 91.0), (32 << 20, 106.0), (1 << 40, 180.0), (None, 106.0)]
)
def test_a_large_body_may_take_longer(num_bytes: int | None, longest_s: float):
    assert _longest(num_bytes, HttpSettings()) == longest_s


async def test_a_body_that_says_it_is_too_large_is_not_waited_for(start: Start):
    server = await start(max_body_bytes=4096)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4097\r\n\r\n"
    async with await server.connect() as stream:
        await stream.send_all(head.encode())
        with trio.fail_after(3):
            answer = await stream.receive_some()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"x-should-retry: false" in answer.lower()


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/nowhere", 404), ("PUT", CHAT, 405)])
async def test_a_long_body_for_no_route_still_hears_the_refusal(start: Start, method: str, path: str, status: int):
    server = await start()
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.request(method, server.url + path, content=b" " * (8 << 20))
    assert reply.status_code == status
    assert reply.headers["x-request-id"].startswith("req-")


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


# How deep the place itself lies: the body and, for tools, the list and its function; for messages, four more.
@pytest.mark.parametrize(("room", "status"), [(0, 200), (1, 400)])
async def test_values_may_be_nested_to_a_depth(start: Start, room: int, status: int):
    server = await start()
    tools = [{"function": {"name": "f", "parameters": {"x": nested(MAX_DEPTH - 5 + room)}}}]
    options = {"x": nested(MAX_DEPTH - 2 + room)}
    arguments = {"x": nested(MAX_DEPTH - 7 + room)}
    messages = [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]
    for fields in ({"tools": tools}, {"chat_template_kwargs": options}, {"messages": messages}):
        reply = await server.chat(**fields)
        assert reply.status_code == status, fields.keys()
        if status == 400:
            assert "nested too deeply" in reply.json()["error"]["message"]


@pytest.mark.parametrize("depth", [MAX_DEPTH, 500, 5000])
async def test_arguments_as_text_are_no_deeper(start: Start, depth: int):
    server = await start()
    text = '{"x":' + "[" * depth + "]" * depth + "}"
    call = {"function": {"name": "f", "arguments": text}}
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": text}
    chat = await server.chat(messages=[{"role": "assistant", "tool_calls": [call]}])
    response = await server.post("/v1/responses", {"model": "fake", "input": [item]})
    for reply, param in ((chat, "messages"), (response, "input")):
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        assert "nested too deeply" in reply.json()["error"]["message"]


async def test_brackets_within_words_are_no_depth(start: Start):
    text = '{"x":"' + "[{" * 500 + '"}'
    call = {"function": {"name": "f", "arguments": text}}
    assert (await (await start()).chat(messages=[{"role": "assistant", "tool_calls": [call]}])).status_code == 200


LONG = "é" * (MAX_PROMPT_BYTES // 2)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/completions", {"prompt": LONG + "x"}),
        ("/v1/completions", {"prompt": [LONG, "x"]}),
        ("/v1/completions", {"prompt_ids": [1] * (MAX_PROMPT_BYTES // 4 + 1), "ignored": "x" * MAX_PROMPT_BYTES}),
        ("/v1/tokenize", {"prompt": LONG + "x"}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": LONG}]}),
    ],
)
async def test_a_prompt_has_a_largest_size(start: Start, path: str, fields: dict[str, Any]):
    server = await start()
    reply = await server.post(path, {"model": "fake", **fields})
    assert reply.status_code == 400
    assert re.search(f"holds [0-9]+ bytes of text, and {MAX_PROMPT_BYTES} are the limit", reply.text)
    assert server.house.requests == server.house.tokenized == []


async def test_a_prompt_of_the_largest_size_is_taken(start: Start):
    server = await start()
    assert (await server.post("/v1/completions", {"model": "fake", "prompt": LONG})).status_code == 200


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
    assert server.house.requests[0].identity.principal == key


async def test_a_broken_trace_does_not_fail_a_request(start: Start, wire: Any):
    server = await start()
    assert (await server.post(CHAT, wire.chat(), traceparent="00-zz")).status_code == 200
    assert server.house.requests[0].traceparent is None
