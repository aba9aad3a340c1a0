"""Listings, probes, metrics and the pointer."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

Start = Callable[..., Awaitable[Any]]


async def test_models_are_listed_byte_for_byte(start: Start):
    server = await start()
    expected = '{"object":"list","data":[{"id":"fake","object":"model"},{"id":"org/other","object":"model"}]}'
    for path in ("/models", "/models", "/models?schema=openai"):
        assert (await server.get(path)).text == expected


async def test_an_unknown_schema_is_refused_with_the_known_ones(start: Start):
    reply = await (await start()).get("/models?schema=nonsense")
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "schema")
    assert "openai" in error["message"]


async def test_the_catalog_has_a_row_a_model(start: Start):
    server = await start()
    first = await server.get("/v1/models")
    rows = first.json()["data"]
    assert [(row["id"], row["object"], row["context_length"]) for row in rows] == [
        ("fake", "model", None),
        ("org/other", "model", None),
    ]
    assert rows[0]["pricing"] == {"prompt": "0", "completion": "0", "request": "0", "image": "0"}
    assert first.content == (await server.get("/v1/models")).content


@pytest.mark.parametrize(
    ("changes", "live", "ready"),
    [
        ({}, (200, "ok"), (200, "ready")),
        ({"is_ready": False, "is_live": False}, (503, "unhealthy"), (503, "not_ready")),
        ({"is_ready": False}, (200, "ok"), (503, "not_ready")),
        ({"is_draining": True}, (200, "draining"), (503, "draining")),
        ({"is_draining": True, "is_live": False}, (503, "unhealthy"), (503, "draining")),
    ],
)
async def test_the_probes_say_what_the_house_reports(
    start: Start, changes: dict[str, bool], live: tuple[int, str], ready: tuple[int, str]
):
    server = await start()
    server.house.health = replace(server.house.health, detail="why", **changes)
    for path, (status, word) in {"/health": live, "/livez": live, "/readyz": ready}.items():
        reply = await server.get(path)
        body = reply.json()
        assert (reply.status_code, body["status"], body["models"]) == (status, word, ["fake"])
        assert body["worker"] == {
            "phase": "idle",
            "beat_age_ms": 3,
            "tick_max_ms": 1,
            "stall_threshold_ms": 120_000,
            "generation": 0,
        }
        assert ("detail" in body) is ("is_live" in changes)
        retry = (reply.headers.get("retry-after"), reply.headers.get("retry-after-ms"))
        assert retry == (("2", "2000") if status == 503 else (None, None))


async def test_metrics_are_json(start: Start):
    server = await start()
    await server.chat()
    assert (await server.get("/metrics")).json() == {"admitted": 1}


async def test_the_root_points_to_the_api(start: Start):
    reply = await (await start()).get("/")
    assert (reply.status_code, reply.text.count("\n")) == (200, 1)
    assert "/v1/models" in reply.text


async def test_answers_do_not_name_the_server_software(start: Start):
    assert "server" not in (await (await start()).get("/")).headers


async def test_what_the_caches_hold_is_json(start: Start):
    server = await start()
    await server.chat()
    reply = await server.get("/cache/stats")
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {"response_cache": {"hits": 1}, "prefix_cache": None}
