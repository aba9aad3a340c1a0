"""A request is judged by its key first, then by its lane, and its body is read last."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio

from memra.messages.identity import KeyClass
from memra.types import Lane, ModelTask

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
    assert server.house.requests[0].identity.principal == "right"


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


PATHS_OF_LANES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "hi", "documents": ["ho"]},
}


@pytest.mark.parametrize("path", PATHS_OF_LANES)
async def test_who_was_found_at_the_door_goes_with_the_request(start: Start, fake_house: Any, path: str):
    tasks = {"fake": ModelTask.RANK if "rerank" in path else ModelTask.EMBED if "embed" in path else ModelTask.GENERATE}
    server = await start(fake_house(valid_key="right", key_class=KeyClass.BATCH, tasks=tasks))
    body, key = {"model": "fake", **PATHS_OF_LANES[path]}, {"authorization": "Bearer right"}
    assert (await server.post(path, body, **key)).status_code == 200
    assert (await server.post(path, body, x_lane="judge", **key)).status_code == 200
    asked = server.house.requests or server.house.texts
    assert [request.lane for request in asked] == [Lane.HARVEST, Lane.JUDGE]
    assert {request.identity.principal for request in asked} == {"right"}


@pytest.mark.parametrize("path", PATHS_OF_LANES)
async def test_a_batch_key_does_not_open_the_interactive_lane(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(valid_key="right", key_class=KeyClass.BATCH))
    refused = await server.post(path, {}, authorization="Bearer right", x_lane="interactive")
    assert refused.status_code == 403
    kind = "permission_error" if path == "/v1/messages" else "authentication_error"
    assert refused.json()["error"]["type"] == kind
    assert "judge or harvest" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"


async def test_the_door_is_told_all_headers_by_their_small_names(start: Start):
    server = await start()
    await server.get("/v1/auth/check", x_badge="ours", authorization="Bearer k")
    (presented,) = server.house.presented
    assert (presented.api_key, presented.headers["x-badge"]) == ("k", "ours")
    assert "ours" not in repr(presented)


async def test_a_salt_cannot_name_a_tenants_namespace(start: Start, wire: Any):
    server = await start()
    for salt in ("t:acme", "t:acme\x1f", "acme\x1f"):
        reply = await server.post(PATHS[0], {**wire.chat(), "cache_salt": salt})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "cache_salt")
    assert server.house.requests == []
