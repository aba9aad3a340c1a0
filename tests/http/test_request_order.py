"""A request is judged by its key first, then by its lane, and its body is read last."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio

Start = Callable[..., Awaitable[Any]]
PATHS = ["/v1/chat/completions", "/v1/completions"]
KEYS = ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic right\r\n"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("key", KEYS, ids=["none", "wrong", "basic"])
async def test_a_request_without_the_key_is_refused_before_its_body(
    start: Start, fake_house: Any, wire: Any, path: str, key: str
):
    server = await start(fake_house(valid_key="right"), body_timeout_s=60.0)
    head = wire.post({}, path=path, headers=key).removesuffix(b"{}")
    async with await server.connect() as stream:
        await stream.send_all(head)
        with trio.fail_after(3):
            answer = await wire.read_until(stream, b"}}")
    assert answer.startswith(b"HTTP/1.1 401")
    assert b'"type":"authentication_error"' in answer
    assert server.house.requests == []


@pytest.mark.parametrize("path", PATHS)
async def test_without_the_key_nothing_else_is_judged(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(valid_key="right"))
    headers = {"content-type": "text/plain", "x-lane": "express"}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        refused = await client.post(path, content=b"{", headers=headers)
        headers["authorization"] = "Bearer right"
        let_in = await client.post(path, content=b"{", headers=headers)
    assert refused.status_code == 401
    assert refused.headers["x-request-id"].startswith(("chatcmpl-", "cmpl-"))
    assert (let_in.status_code, let_in.json()["error"]["code"]) == (400, "invalid_lane")


@pytest.mark.parametrize("path", PATHS)
async def test_with_the_key_the_house_answers(start: Start, fake_house: Any, wire: Any, path: str):
    server = await start(fake_house(valid_key="right"))
    reply = await server.post(path, {**wire.chat(), "prompt": "hi"}, authorization="Bearer right")
    assert reply.status_code == 200
    assert server.house.requests[0].api_key == "right"


async def test_a_long_body_without_the_key_still_hears_the_refusal(start: Start, fake_house: Any):
    server = await start(fake_house(valid_key="right"))
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.post(
            server.url + PATHS[0], content=b" " * (8 << 20), headers={"content-type": "application/json"}
        )
    assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")


async def test_a_body_for_an_unknown_lane_is_not_waited_for(start: Start, wire: Any):
    server = await start(body_timeout_s=60.0)
    async with await server.connect() as stream:
        await stream.send_all(wire.post({}, headers="x-lane: express\r\n").removesuffix(b"{}"))
        with trio.fail_after(3):
            assert b'"code":"invalid_lane"' in await wire.read_until(stream, b"}}")
