"""Pages in browsers: exactly the named origins may call, and by default none may."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from memra.errors import BusyError, ConfigurationError
from memra.settings import read_settings

Start = Callable[..., Awaitable[Any]]
CHAT = "/v1/chat/completions"
OURS = "https://chat.example.org"
ASKED = "authorization, content-type, x-stainless-lang"


async def preflight(server: Any, origin: str, *, asked: str = ASKED) -> httpx.Response:
    headers = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": asked}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        return await client.options(CHAT, headers=headers)


async def test_a_named_origin_is_granted_what_it_asks_for(start: Start, fake_house: Any):
    server = await start(fake_house(valid_key="right"), cors_origins=(OURS, "http://localhost:3000"))
    for origin in (OURS, "http://localhost:3000"):
        reply = await preflight(server, origin)
        assert (reply.status_code, reply.content) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == origin
        assert reply.headers["access-control-allow-headers"] == ASKED
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert reply.headers["access-control-max-age"] == "600"
        assert reply.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in reply.headers


@pytest.mark.parametrize(
    "origin", ["https://evil.org", "http://chat.example.org", f"{OURS}:8443", f"{OURS}.evil.org", "null", ""]
)
async def test_another_origin_is_granted_nothing(start: Start, origin: str):
    server = await start(cors_origins=(OURS,))
    reply = await preflight(server, origin)
    assert not [name for name in reply.headers if name.startswith("access-control")]
    reply = await server.get("/v1/models", origin=origin)
    assert reply.status_code == 200
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert reply.headers["vary"] == "Origin"


@pytest.mark.parametrize("asked", ["x y", "x,,y", "x" * 3000, "x(y)"])
async def test_odd_headers_are_not_granted(start: Start, asked: str):
    reply = await preflight(await start(cors_origins=(OURS,)), OURS, asked=asked)
    assert "access-control-allow-headers" not in reply.headers


async def test_answers_streams_and_refusals_can_be_read_by_the_page(start: Start, fake_house: Any, wire: Any):
    for house, status in ((fake_house(), 200), (fake_house(refusal=BusyError("Full.")), 429)):
        server = await start(house, cors_origins=(OURS,))
        for stream in (False, True):
            reply = await server.post(CHAT, wire.chat(stream=stream), origin=OURS)
            assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, OURS)
            exposed = reply.headers["access-control-expose-headers"].split(", ")
            assert {"x-request-id", "retry-after", "retry-after-ms", "x-ratelimit-remaining"} <= set(exposed)
    missing = await server.get("/nowhere", origin=OURS)
    assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (404, OURS)


async def test_by_default_no_page_may_call(start: Start):
    server = await start()
    for reply in (await preflight(server, OURS), await server.get("/v1/models", origin=OURS)):
        assert reply.status_code == 200
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert "vary" not in reply.headers


@pytest.mark.parametrize("text", ["https://a.org", "http://localhost:3000, https://b.org:8443", "http://[::1]:80000"])
def test_origins_are_read_from_text(text: str):
    origins = read_settings({}, environ={"MEMRA_CORS_ORIGINS": text}).http.cors_origins
    assert origins == tuple(origin.strip() for origin in text.split(","))


@pytest.mark.parametrize(
    "text",
    ["*", "null", "a.org", "https://a.org/", "https://A.org", "https://*.a.org", "https://a.org:443", "http://a:"],
)
def test_what_no_browser_sends_is_refused_at_start(text: str):
    with pytest.raises(ConfigurationError, match=r"MEMRA_CORS_ORIGINS.*must be origins such as"):
        read_settings({}, environ={"MEMRA_CORS_ORIGINS": text})
