"""The real program while its worker dies, hangs or fails on a request, as a setting asks of it."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

LONG = {
    "model": "small",
    "messages": [{"role": "user", "content": "Write all numbers from 1 to 500, one per line."}],
    "temperature": 0,
    "max_tokens": 400,
    "stream": True,
}
SHORT = {
    "model": "small",
    "messages": [{"role": "user", "content": "Name three rivers in Europe."}],
    "temperature": 0,
    "max_tokens": 12,
}


def ask(server: Server, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)


def events(lines: Iterator[str]) -> Iterator[str]:
    return (line.removeprefix("data: ") for line in lines if line.startswith("data: "))


def test_a_queued_request_is_answered_whole_by_the_next_worker(start: Start, smollm2_path: Path):
    environ = {"MEMRA_PANIC_AFTER": "100,160", "MEMRA_MAX_ROWS": "1"}
    server = start("-m", f"small={smollm2_path}", environ=environ)
    with (
        ThreadPoolExecutor(1) as pool,
        httpx.stream("POST", f"{server.url}/v1/chat/completions", json=LONG, timeout=120) as stream,
    ):
        told = events(stream.iter_lines())
        for _ in range(3):
            assert "error" not in json.loads(next(told))
        queued = pool.submit(ask, server, SHORT)  # there is one row only, so it waits
        rest = list(told)
        assert rest[-1] == "[DONE]"
        error = json.loads(rest[-2])["error"]
        assert (error["code"], error["type"]) == ("overloaded", "server_error")
        answer = queued.result()
    health = httpx.get(f"{server.url}/health").json()
    assert (health["status"], health["worker"]["generation"]) == ("ok", 1)
    assert answer.status_code == 200
    undisturbed = ask(server, SHORT)
    assert answer.json()["choices"] == undisturbed.json()["choices"]
    assert answer.json()["usage"]["completion_tokens"] == 12
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=LONG, timeout=120) as stream:
        rest = list(events(stream.iter_lines()))  # in whose midst the worker dies again
    assert json.loads(rest[-2])["error"]["code"] == "overloaded"
    assert server.process.wait(timeout=60) == 70


def test_a_fault_stays_with_its_request(start: Start, smollm2_path: Path):
    server = start("-m", f"small={smollm2_path}", environ={"MEMRA_FAULT_AFTER": "2"})
    replies = [ask(server, SHORT) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [200, 500, 200]
    assert replies[1].json()["error"]["code"] == "worker_fault"
    assert replies[0].json()["choices"] == replies[2].json()["choices"]
    assert httpx.get(f"{server.url}/readyz").json()["worker"]["generation"] == 0


def test_a_hung_worker_turns_the_probes_red_and_does_not_hold_the_drain(start: Start, smollm2_path: Path):
    environ = {"MEMRA_HANG_AFTER": "5", "MEMRA_HEALTH_STALL_S": "1", "MEMRA_DRAIN_S": "0.2"}
    server = start("-m", f"small={smollm2_path}", environ=environ)
    assert httpx.get(f"{server.url}/livez").status_code == 200
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=LONG, timeout=120) as stream:
        told = events(stream.iter_lines())  # a name for it, for without one it would be closed, and the client gone
        next(told)
        server.wait_for("hangs in step 5")
        for path in ("/livez", "/readyz"):
            probe = poll(server, path, until=503)
            assert "no sign of life" in probe.json()["detail"]
            assert probe.headers["retry-after"] == "2"
    assert server.stop() == 0


def poll(server: Server, path: str, *, until: int) -> httpx.Response:
    """Ask a probe until it has a status; the worker has a second before it counts as hung."""
    for _ in range(2000):
        probe = httpx.get(f"{server.url}{path}")
        if probe.status_code == until:
            return probe
    pytest.fail(f"{path} stays {probe.status_code}: {probe.text}")
