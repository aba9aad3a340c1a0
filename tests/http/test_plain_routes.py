"""Listings, probes, metrics and the pointer."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memra.messages.lifecycle import GpuProbeState, GpuReported
from memra.messages.work import PrefillProgress
from memra.types import WorkerPhase

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


async def test_the_catalog_has_a_row_a_model(start: Start, fake_house: Any):
    server = await start(fake_house(contexts={"fake": 4096}))
    first = await server.get("/v1/models")
    rows = first.json()["data"]
    assert [(row["id"], row["object"], row["context_length"]) for row in rows] == [
        ("fake", "model", 4096),
        ("org/other", "model", None),
    ]
    assert [row["top_provider"]["context_length"] for row in rows] == [4096, None], "a lazy one is not known yet"
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
            "xid_warnings": 0,
            "forward_progress_age_ms": None,
            "prime_progress": None,
            "gpu_probe": None,
            "scheduler_phase": "idle",
            "idle_for_ms": 12,
        }
        assert ("detail" in body) is ("is_live" in changes)
        retry = (reply.headers.get("retry-after"), reply.headers.get("retry-after-ms"))
        wait_s = 30 if word == "draining" else 2
        assert retry == ((str(wait_s), str(1000 * wait_s)) if status == 503 else (None, None))


async def test_the_probes_tell_of_a_prefill_and_of_the_gpu(start: Start):
    server = await start()
    prefill = PrefillProgress(num_rows=512, num_chunks=2, progress_at=1.0)
    beat = replace(server.house.health.worker, phase=WorkerPhase.BUSY, prefill=prefill)
    gpu = GpuReported(None, 3, GpuProbeState.OK, probe_age_ms=40.2, probe_took_ms=8.0, num_probe_hangs=1)
    server.house.health = replace(
        server.house.health, worker=beat, prefill_age_ms=5.4, forward_progress_age_ms=4.0, idle_for_ms=None, gpu=gpu
    )
    worker = (await server.get("/health")).json()["worker"]
    assert worker["prime_progress"] == {"rows": 512, "chunks": 2, "age_ms": 5}
    assert (worker["forward_progress_age_ms"], worker["scheduler_phase"], worker["idle_for_ms"]) == (4, "prefill", None)
    assert (worker["xid_warnings"], worker["phase"]) == (3, "busy")
    assert worker["gpu_probe"] == {"state": "ok", "age_ms": 40, "took_ms": 8, "hangs": 1}
    server.house.health = replace(server.house.health, worker=replace(beat, prefill=None))
    assert (await server.get("/health")).json()["worker"]["scheduler_phase"] == "decode"


async def test_metrics_are_json(start: Start):
    server = await start()
    await server.chat()
    assert (await server.get("/metrics")).json() == {"admitted": 1, "ignored_request_fields": {}}


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


@pytest.mark.parametrize("headers", [{"authorization": "Bearer right"}, {"x_api_key": "right"}])
async def test_a_key_can_be_checked_without_a_request(start: Start, fake_house: Any, headers: dict[str, str]):
    server = await start(fake_house(valid_key="right"))
    reply = await server.get("/v1/auth/check", **headers)
    assert (reply.status_code, reply.content) == (204, b"")
    assert not {"content-length", "content-type", "transfer-encoding"} & set(reply.headers)
    refused = await server.get("/v1/auth/check")
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("path", ["/", "/livez", "/models", "/v1/models", "/v1/models/none", "/metrics", "/none"])
async def test_every_answer_has_an_id_of_its_own(start: Start, path: str):
    server = await start()
    ids = {(await server.get(path)).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch(r"req-[0-9a-f]{32}", request_id) for request_id in ids)
