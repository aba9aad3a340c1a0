"""A stored answer of a real model says, byte for byte, what computing it again would say."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

CASES: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 24},
    {"temperature": 0, "max_tokens": 200, "stop": ["."]},
    {"temperature": 1.0, "seed": 7, "max_tokens": 24},
    {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 0, "max_tokens": 24},
]
OWN = ("id", "created", "memra_cache")
"""Fields that belong to the request and not to the answer; beside them, so does `usage.elapsed_s`."""


@pytest.fixture(scope="module")
def keeping(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}", environ={"MEMRA_RESPONSE_CACHE_MB": "8"})


@pytest.fixture(scope="module")
def computing(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}")


def ask(server: Server, question: str, **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": question}], **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300).raise_for_status()


def told(reply: httpx.Response) -> bytes:
    """The body without what belongs to the request, in the order in which it was sent."""
    body = reply.json()
    for name in OWN:
        del body[name]
    del body["usage"]["elapsed_s"]
    return json.dumps(body, ensure_ascii=False).encode()


def stats(server: Server) -> Mapping[str, int]:
    report = httpx.get(f"{server.url}/cache/stats", timeout=30).json()
    assert set(report) == {"response_cache", "prefix_cache"}
    return report["response_cache"]


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_a_hit_equals_a_recompute(keeping: Server, computing: Server, fields: dict[str, Any]):
    replies = [ask(server, "Name three rivers.", **fields) for server in (keeping, keeping, computing)]
    assert [reply.json()["memra_cache"] for reply in replies] == ["miss", "hit", "skip"]
    assert list(replies[0].json()) == list(replies[1].json()) == list(replies[2].json())
    miss, hit, recompute = map(told, replies)
    assert miss == hit == recompute
    assert {key: value for key, value in replies[0].headers.items() if key.startswith("x-ratelimit")} == {
        key: value for key, value in replies[1].headers.items() if key.startswith("x-ratelimit")
    }


def test_the_stats_count_what_happened(keeping: Server, computing: Server):
    before = stats(keeping)
    for salt in ("one", "one", "two"):
        ask(keeping, "Name a sea.", temperature=0, max_tokens=8, cache_salt=salt)
    ask(keeping, "Name a sea.", max_tokens=8)
    after = stats(keeping)
    assert {name: after[name] - before[name] for name in ("hits", "misses", "entries")} == {
        "hits": 1,
        "misses": 2,
        "entries": 2,
    }
    assert before["bytes"] < after["bytes"] < after["limit_bytes"] == 8 << 20
    assert stats(computing) == {"hits": 0, "misses": 0, "entries": 0, "bytes": 0, "limit_bytes": 0}


def test_equal_requests_at_the_same_time_cost_one_computation(keeping: Server):
    num_admitted = keeping.metrics()["admitted"]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: ask(keeping, "Name a lake.", temperature=0, max_tokens=32), range(8)))
    assert len({told(reply) for reply in replies}) == 1
    assert sorted(reply.json()["memra_cache"] for reply in replies) == ["hit"] * 7 + ["miss"]
    keeping.wait_for_metrics(admitted=num_admitted + 1)
