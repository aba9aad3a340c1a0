"""The ledger in the real server: what clients are told that they used is what they are billed for, and nothing else."""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.money import nanos
from memra_metering_ledger.tables import owners, receipts
from sqlalchemy import select

from tests.e2e.server_process import Server, launch
from tests.e2e.tiny_models import CONTEXT_TOKENS, write_models

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Tell me more."}], "temperature": 0}
PRICE = PriceTable(prompt="0.000001", cached_prompt="0.00000025", completion="0.000004", request="0.00001")
NAMES = ("tiny", "vec", "rank")
CREDIT = "50"
KILLS, ANSWERS_PER_LIFE, CLIENTS = 6, 60, 8


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


Begin = Callable[..., Server]


@pytest.fixture(scope="module")
def begin(models: dict[str, Path]) -> Iterator[Begin]:
    """Start servers on a ledger; those that still run at the end must end cleanly."""
    servers: list[Server] = []

    def begin_one(database: str, **environ: str) -> Server:
        words = [word for name, path in models.items() for word in ("-m", f"{name}={path}")]
        own = {"MEMRA_KV_MB": "16", "MEMRA_COMPAT": "openai", "MEMRA_LEDGER_DATABASE": database}
        servers.append(launch(*words, environ=own | environ))
        return servers[-1]

    yield begin_one
    for server in servers:
        server.end()


@pytest.fixture(scope="module")
def books(make_books: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    books = make_books(f"sqlite:///{tmp_path_factory.mktemp('served') / 'ledger.sqlite3'}", timeout_s=20)
    books.desk.set_prices(dict.fromkeys(NAMES, PRICE))
    books.credit("default", CREDIT)
    yield books
    books.check()
    books.close()


@pytest.fixture(scope="module")
def server(begin: Begin, books: Any) -> Server:
    return begin(books.url, MEMRA_RESPONSE_CACHE_MB="8")


@pytest.fixture(autouse=True)
def _a_ledger_that_adds_up(books: Any) -> Iterator[None]:
    yield
    books.check()


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=120)


def rows_of(books: Any, request_id: str) -> list[Any]:
    """Return the receipts of a request, or of its items, in order."""
    mine = (receipts.c.request_id == request_id) | receipts.c.request_id.startswith(f"{request_id}.")
    with books.database.read() as connection:
        return list(connection.execute(select(receipts).where(mine).order_by(receipts.c.request_id)).all())


def tokens_of(row: Any) -> tuple[int, int, int]:
    return row.prompt_tokens, row.cached_prompt_tokens, row.completion_tokens


def told(usage: dict[str, Any]) -> tuple[int, int, int]:
    details = usage.get("prompt_tokens_details") or {}
    return usage["prompt_tokens"], details.get("cached_tokens", 0), usage.get("completion_tokens", 0)


def cost_of(prompt: int, cached: int, completion: int) -> int:
    """Return what it costs in nanos; the prices are whole numbers of quarters of micros."""
    return (prompt - cached) * 1_000 + cached * 250 + completion * 4_000 + 10_000


def read_stream(reply: httpx.Response) -> list[dict[str, Any]]:
    lines = (line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {"))
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT | {"max_tokens": 9}),
        ("/v1/chat/completions", CHAT | {"max_tokens": 9, "n": 3, "temperature": 1}),
        ("/v1/chat/completions", CHAT | {"max_tokens": 30, "stop": ["e"]}),
        ("/v1/completions", {"model": "tiny", "prompt": ["One", "Two and three"], "max_tokens": 5, "n": 2}),
        ("/v1/completions", {"model": "tiny", "prompt": "To the end of the context: "}),
    ],
)
def test_an_answer_is_billed_as_its_usage_says(server: Server, books: Any, path: str, body: dict[str, Any]):
    answer = post(server, path, **body).raise_for_status().json()
    (row,) = rows_of(books, answer["id"])
    assert (row.outcome, row.status, row.route) == ("completed", 200, path)
    assert tokens_of(row) == told(answer["usage"])
    assert row.charged == cost_of(*told(answer["usage"]))


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_billed_as_its_last_event_says(server: Server, books: Any, n: int):
    reply = post(server, "/v1/chat/completions", **CHAT, stream=True, max_tokens=12, n=n)
    *_, last = read_stream(reply)
    (row,) = rows_of(books, last["id"])
    assert (row.outcome, tokens_of(row)) == ("completed", told(last["usage"]))


def test_other_shapes_are_billed_as_they_say(server: Server, books: Any):
    response = post(server, "/v1/responses", model="tiny", input="Hello there", max_output_tokens=6).json()
    usage = response["usage"]
    (row,) = rows_of(books, response["id"])
    cached = usage["input_tokens_details"]["cached_tokens"]
    assert tokens_of(row) == (usage["input_tokens"], cached, usage["output_tokens"])
    message = post(server, "/v1/messages", **CHAT, max_tokens=6).json()
    (row,) = rows_of(books, message["id"])
    assert (row.route, row.completion_tokens) == ("/v1/messages", message["usage"]["output_tokens"])


def test_an_answer_that_was_kept_is_billed_like_the_one_that_was_computed(server: Server, books: Any):
    body = CHAT | {"max_tokens": 11, "messages": [{"role": "user", "content": "Once only."}]}
    first, second = (post(server, "/v1/chat/completions", **body).raise_for_status().json() for _ in range(2))
    assert (first["memra_cache"], second["memra_cache"]) == ("miss", "hit")
    assert told(first["usage"]) == told(second["usage"])
    for answer in (first, second):
        (row,) = rows_of(books, answer["id"])
        assert (row.outcome, tokens_of(row)) == ("completed", told(answer["usage"]))


@pytest.mark.parametrize(
    ("path", "body", "num_items"),
    [
        ("/v1/embeddings", {"model": "vec", "input": ["one", "two of them", "three"]}, 3),
        ("/v1/embeddings", {"model": "vec", "input": "one"}, 1),
        ("/v1/rerank", {"model": "rank", "query": "who?", "documents": ["I", "you and I"]}, 2),
    ],
)
def test_texts_are_billed_each_by_itself(server: Server, books: Any, path: str, body: dict[str, Any], num_items: int):
    reply = post(server, path, **body).raise_for_status()
    request_id = reply.headers["x-request-id"]
    rows = rows_of(books, request_id)
    assert [row.request_id for row in rows] == [f"{request_id}.{index}" for index in range(num_items)]
    assert {row.outcome for row in rows} == {"completed"}
    assert sum(row.prompt_tokens for row in rows) == reply.json()["usage"]["total_tokens"]
    assert all(row.completion_tokens == 0 for row in rows)


def test_a_client_that_closes_its_stream_pays_for_what_was_generated(server: Server, books: Any):
    body = CHAT | {"max_tokens": 500, "stream": True, "logit_bias": {"258": -100, "256": -100}}
    chunks = []
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=120) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                chunks.append(json.loads(line.removeprefix("data: ")))
            if len(chunks) == 2:
                break
    server.wait_for_metrics(active_sessions=0, queued_requests=0)
    row = wait_for_end(books, chunks[0]["id"])
    assert row.outcome == "abandoned"
    assert 0 < row.completion_tokens <= 500
    assert row.charged == cost_of(*tokens_of(row))
    assert row.prompt_tokens > 0


def wait_for_end(books: Any, request_id: str) -> Any:
    """Ask until the receipt is closed; the server writes it behind the client's back."""
    for _ in range(2_000):
        (row,) = rows_of(books, request_id)
        if row.outcome is not None:
            return row
    pytest.fail(f"the receipt of {request_id} stays open")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", CHAT | {"top_p": 7}, 400),
        ("/v1/chat/completions", CHAT | {"model": "nobody"}, 400),
        ("/v1/completions", {"model": "tiny", "prompt": "x" * 4000, "max_tokens": 5}, 400),
        ("/v1/embeddings", {"model": "vec", "input": []}, 400),
    ],
)
def test_a_refusal_is_on_the_books_and_costs_nothing(
    server: Server, books: Any, path: str, body: dict[str, Any], status: int
):
    reply = post(server, path, **body)
    assert reply.status_code == status
    (row,) = rows_of(books, reply.headers["x-request-id"])
    assert (row.outcome, row.status, row.code) == ("rejected", status, reply.json()["error"]["code"])
    assert row.charged == 0


def test_who_is_kept_out_is_told_so_and_may_come_back(server: Server, books: Any):
    books.desk.set_admission("default", "blocked")
    try:
        for body in (CHAT | {"max_tokens": 3}, CHAT | {"max_tokens": 3, "stream": True}):
            reply = post(server, "/v1/chat/completions", **body)
            error = reply.json()["error"]
            assert (reply.status_code, error["type"], error["code"]) == (402, *["insufficient_balance"] * 2)
            assert reply.headers["x-should-retry"] == "false"
            (row,) = rows_of(books, reply.headers["x-request-id"])
            assert (row.outcome, row.charged) == ("rejected", 0)
    finally:
        books.desk.set_admission("default", "open")
    assert post(server, "/v1/chat/completions", **CHAT, max_tokens=3).status_code == 200


def test_the_worst_case_must_be_covered_before_anything_is_computed(begin: Begin, make_books: Any, tmp_path: Path):
    poor = make_books(f"sqlite:///{tmp_path / 'poor.sqlite3'}", timeout_s=20)
    poor.desk.set_prices(dict.fromkeys(NAMES, PRICE))
    poor.credit("default", "0.001")
    server = begin(poor.url)
    covered, uncovered = ({"model": "tiny", "prompt": "hi", "max_tokens": count} for count in (100, 400))
    reply = post(server, "/v1/completions", **uncovered)
    assert (reply.status_code, reply.json()["error"]["code"]) == (402, "insufficient_balance")
    assert server.metrics()["tokens_out"] == 0
    assert post(server, "/v1/completions", **covered).status_code == 200
    assert server.metrics()["limits_source_available"] is True
    assert CONTEXT_TOKENS > 400
    assert server.stop() == 0
    poor.check()
    poor.close()


# -- killed


@dataclass
class Load:
    """Clients that ask all the time, and what they were answered.

    Attributes:
        answered: ids of the requests whose last byte was read.
    """

    server: Server
    answered: list[str] = field(default_factory=list)
    has_enough: threading.Event = field(default_factory=threading.Event)

    def ask_until_killed(self, number: int) -> None:
        draw = random.Random(number)  # noqa: S311  (which requests, not a secret)
        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            while self._ask(client, draw):
                if len(self.answered) >= ANSWERS_PER_LIFE:
                    self.has_enough.set()

    def _ask(self, client: httpx.Client, draw: random.Random) -> bool:
        body = CHAT | {"max_tokens": draw.randrange(1, 20), "stream": draw.random() < 0.5}
        try:
            if body["stream"]:
                return self._read_stream(client, body, leaves=draw.random() < 0.2)
            reply = client.post("/v1/chat/completions", json=body)
        except httpx.TransportError:
            return False
        assert reply.status_code == 200, reply.text
        self.answered.append(reply.json()["id"])
        return True

    def _read_stream(self, client: httpx.Client, body: dict[str, Any], *, leaves: bool) -> bool:
        with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            for line in reply.iter_lines():
                if line == "data: [DONE]":
                    self.answered.append(reply.headers["x-request-id"])
                elif leaves and line.startswith("data: {"):
                    break
        return True


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_server_that_is_killed_amid_requests_leaves_no_answer_unbilled_and_none_billed_twice(
    begin: Begin, make_books: Any, tmp_path: Path
):
    books = make_books(f"sqlite:///{tmp_path / 'killed.sqlite3'}", timeout_s=20)
    books.desk.set_prices(dict.fromkeys(NAMES, PRICE))
    books.credit("default", CREDIT)
    answered: list[str] = []
    for life in range(KILLS):
        server = begin(books.url)
        load = Load(server)
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(load.ask_until_killed, life * CLIENTS + number) for number in range(CLIENTS)]
            assert load.has_enough.wait(300)
            server.process.kill()
            for client in clients:
                client.result()
        server.process.wait()
        books.check()  # at the moment of its death, with what it held
        answered += load.answered
    server = begin(books.url)  # releases what the last one held
    with books.database.read() as connection:
        rows = list(connection.execute(select(receipts)).all())
        assert len(list(connection.execute(select(owners)))) == 1
    assert server.stop() == 0
    paid = Counter(row.request_id for row in rows if row.outcome in {"completed", "abandoned"})
    assert len(answered) >= KILLS * ANSWERS_PER_LIFE
    assert set(paid.values()) == {1}
    completed = {row.request_id for row in rows if row.outcome == "completed"}
    assert set(answered) <= completed
    assert len(completed - set(answered)) <= KILLS * CLIENTS * 2  # settled, and killed or left before the last byte
    assert {row.outcome for row in rows} <= {"completed", "abandoned", "crashed"}
    balance, held, settled = books.account("default")
    assert (held, books.holds(), balance + settled) == (0, [], nanos(CREDIT))
    assert settled == sum(row.charged for row in rows)
    books.check()
    books.close()
