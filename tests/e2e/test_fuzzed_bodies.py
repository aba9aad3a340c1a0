"""Thousands of nearly right bodies on every route: answered or refused in the documented shape, and never a fault."""

import http.client
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.answer_schemas import AnswerSchemas
from tests.e2e.body_mutations import Body, bodies
from tests.e2e.server_process import Server, Start
from tests.e2e.tiny_models import serve_tiny_models
from tests.e2e.valid_bodies import BODIES, CANCEL

NUM_CLIENTS = 6
ANSWER_LIMIT_S = 60.0
FAULTS = ("Traceback", "failed, request", "ERROR")


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return serve_tiny_models(start, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def schemas(server: Server) -> AnswerSchemas:
    return AnswerSchemas(httpx.get(f"{server.url}/openapi.json").json())


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_the_bodies_that_are_damaged_are_answered(server: Server, schemas: AnswerSchemas, path: str, body: dict):
    reply = httpx.post(f"{server.url}{path}", json=body, timeout=ANSWER_LIMIT_S)
    assert reply.status_code == 200, reply.text
    schemas.check(path, reply.status_code, reply.headers["content-type"], reply.content)


def test_a_cancellation_of_nothing_is_refused_as_documented(server: Server, schemas: AnswerSchemas):
    path, body = CANCEL
    reply = httpx.post(f"{server.url}{path}", json=body)
    assert reply.status_code == 404
    schemas.check(path, reply.status_code, reply.headers["content-type"], reply.content)


def test_two_thousand_fuzzed_bodies_meet_no_fault(server: Server, schemas: AnswerSchemas):
    _fuzz(server, schemas, count=2000, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_thousand_fuzzed_bodies_meet_no_fault(start: Start, schemas: AnswerSchemas, tmp_path: Path):
    server = serve_tiny_models(start, tmp_path)
    statuses = _fuzz(server, schemas, count=20_000, seed=2)
    assert server.stop() == 0
    said = server.output()
    assert not [word for word in FAULTS if word in said], said
    print(f"statuses: {sorted(statuses.items())}")  # noqa: T201  (how deep the bodies came)


def _fuzz(server: Server, schemas: AnswerSchemas, *, count: int, seed: int) -> Counter[int]:
    """Send fuzzed bodies over several connections; the statuses that came."""
    numbered = enumerate(bodies((*BODIES, CANCEL), count=count, seed=seed))
    shared = _Shared(numbered)
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        parts = [pool.submit(_send_all, server, schemas, shared, seed=seed) for _ in range(NUM_CLIENTS)]
        statuses = sum((part.result() for part in parts), Counter[int]())
    assert statuses.total() == count
    assert statuses[200] > count // 10, "nothing came through to the models"
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    return statuses


class _Shared:
    """Bodies that several threads take from."""

    def __init__(self, numbered: Iterator[tuple[int, Body]]) -> None:
        self._numbered = numbered
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[int, Body]]:
        while True:
            with self._lock:
                taken = list(itertools.islice(self._numbered, 1))
            if not taken:
                return
            yield taken[0]


def _send_all(server: Server, schemas: AnswerSchemas, shared: _Shared, *, seed: int) -> Counter[int]:
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=ANSWER_LIMIT_S)
    for number, (path, body) in shared:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        statuses[reply.status] += 1
        try:
            assert reply.status < 500, content
            schemas.check(path, reply.status, reply.headers["content-type"], content)
        except (AssertionError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise AssertionError(f"body {number} of seed {seed}, {path} {body[:3000]!r}: {error}") from error
    connection.close()
    return statuses
