"""Clients that leave at any moment leave nothing behind: no row, no page, no slot, no place in the queue."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import httpx
import pytest

from memra.cli_bench.agents.chat_stream import Endpoint, Leaving, StreamedAnswer, stream_chat
from memra.cli_bench.agents.server_gauges import num_pages_lost, read_gauges, wait_until_idle
from memra.cli_bench.agents.session_text import SessionText
from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

NUM_CLIENTS = 200
WITHIN_S = 10.0
"""One prefill chunk takes well under a second alone; a machine that is shared takes longer."""


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path, qwen_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}")


def _free_slots(server: Server, model: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    return int(answer.headers["x-ratelimit-remaining"])


def _visit(endpoint: Endpoint, number: int) -> StreamedAnswer:
    """Leave while queued, in the prefill, or in mid-answer; whoever waits too long leaves too."""
    draw = Random(number)  # noqa: S311  (moments and lengths, nothing secret)
    text = SessionText(f"visitor {number}")
    body = {
        "model": draw.choice(["small", "coder"]),
        "messages": [{"role": "user", "content": text.code(draw.choice([10, 60, 400]))}],
        "max_tokens": 400,
    }
    kinds = [
        Leaving(after_s=draw.uniform(0.001, 0.3)),
        Leaving(after_s=draw.uniform(0.3, 4.0)),
        Leaving(after_events=draw.randint(1, 8), after_s=draw.uniform(4.0, 10.0)),
    ]
    return stream_chat(endpoint, body, leaving=kinds[number % len(kinds)])


def test_two_hundred_clients_leave_and_nothing_stays(server: Server):
    endpoint = Endpoint.parse(server.url)
    slots = {model: _free_slots(server, model) for model in ("small", "coder")}
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        answers = list(pool.map(lambda number: _visit(endpoint, number), range(NUM_CLIENTS)))
    left_at = time.perf_counter()
    wait_until_idle(endpoint, within_s=WITHIN_S)
    assert time.perf_counter() - left_at < WITHIN_S
    assert all(answer.has_left for answer in answers), [a.describe_failure() for a in answers if not a.has_left][:3]
    assert any(answer.times for answer in answers)
    assert any(not answer.times for answer in answers)
    assert num_pages_lost(read_gauges(endpoint)) == 0
    assert {model: _free_slots(server, model) for model in slots} == slots
