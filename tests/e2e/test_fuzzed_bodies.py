"""Thousands of nearly right bodies on every route: answered or refused in the documented shape, and never a fault."""

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.answer_schemas import AnswerSchemas
from tests.e2e.body_mutations import Body, bodies
from tests.e2e.server_process import Server, Start
from tests.e2e.tiny_models import serve_tiny_models
from tests.e2e.valid_bodies import BODIES, CANCEL

NUM_CLIENTS = 6
MAX_SHOWN = 8
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
    numbered = _Numbered(enumerate(bodies((*BODIES, CANCEL), count=count, seed=seed)))
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        parts = [pool.submit(_send_all, server, schemas, numbered) for _ in range(NUM_CLIENTS)]
        tallies = [part.result() for part in parts]
    problems = [problem for tally in tallies for problem in tally.problems]
    assert not problems, f"seed {seed}, {len(problems)} of {count}:\n" + "\n".join(problems[:MAX_SHOWN])
    statuses = sum((tally.statuses for tally in tallies), Counter[int]())
    assert statuses.total() == count
    assert statuses[200] > count // 10, "nothing came through to the models"
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    return statuses


@dataclass
class _Tally:
    """What one client saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class _Numbered:
    """Bodies that several threads take from."""

    def __init__(self, numbered: Iterator[tuple[int, Body]]) -> None:
        self._numbered = numbered
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[int, Body]]:
        while True:
            with self._lock:
                taken = next(self._numbered, None)
            if taken is None:
                return
            yield taken


def _send_all(server: Server, schemas: AnswerSchemas, numbered: _Numbered) -> _Tally:
    tally = _Tally()
    address = server.url.removeprefix("http://")
    with closing(http.client.HTTPConnection(address, timeout=ANSWER_LIMIT_S)) as connection:
        for number, (path, body) in numbered:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
            tally.statuses[reply.status] += 1
            try:
                assert reply.status < 500, content
                assert b'"server_error"' not in content, content
                schemas.check(path, reply.status, reply.headers["content-type"], content)
            except (AssertionError, ValueError) as error:
                tally.problems.append(f"body {number}, {path} {body[:2000]!r}: {str(error)[:1000]}")
    return tally
