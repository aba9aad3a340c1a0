"""Counters are for whoever runs the server."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

Start = Callable[..., Awaitable[Any]]
PATHS = pytest.mark.parametrize("path", ["/metrics", "/yield/metrics", "/cache/stats"])


async def read(server: Any, path: str, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        return await client.get(path, headers=headers)


@PATHS
async def test_without_a_token_a_key_shows_them_where_there_are_keys(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(valid_key="sk-good"))
    assert [(await read(server, path, token)).status_code for token in ("sk-good", "sk-bad", None)] == [200, 401, 401]
    open_server = await start()
    assert (await read(open_server, path, None)).status_code == 200


@PATHS
async def test_tenants_do_not_see_each_others(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(has_tenants=True))
    reply = await read(server, path, "mk-acme-1")
    assert (reply.status_code, reply.json()["error"]["type"]) == (403, "authentication_error")
    assert "MEMRA_METRICS_TOKEN" in reply.json()["error"]["message"]


@PATHS
async def test_the_token_shows_them_and_keys_do_not(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(has_tenants=True), metrics_token="scraper")  # noqa: S106  (a test's)
    assert [(await read(server, path, token)).status_code for token in ("scraper", "mk-acme-1", None)] == [
        200,
        403,
        401,
    ]
    assert server.house.presented == []
