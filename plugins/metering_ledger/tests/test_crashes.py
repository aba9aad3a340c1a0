"""What is left when servers are killed, and what several of them do to one ledger at once."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from memra_metering_ledger.money import nanos
from memra_metering_ledger.tables import owners, receipts
from sqlalchemy import func, select

SERVER = Path(__file__).with_name("server_process.py")
REQUESTS, THREADS = 1_000, 4


def start(url: str, tenant: str, prefix: str, numbers: range, *, mode: str) -> "subprocess.Popen[str]":
    arguments = [url, tenant, prefix, str(numbers.start), str(numbers.stop), str(THREADS), mode]
    return subprocess.Popen([sys.executable, SERVER, *arguments], stdout=subprocess.PIPE, text=True)


def serve_until_killed(books, prefix: str, numbers: range, num_lines: int) -> list[tuple[str, str]]:
    """Let a server answer so many requests, kill it, and return what it said; it may come to its end before that."""
    with start(books.url, "acme", prefix, numbers, mode="mixed") as server:
        said = [line for _, line in zip(range(num_lines), server.stdout, strict=False)]
        server.kill()
        said += server.stdout.readlines()
    return [tuple(line.split()) for line in said]


def billed(books) -> Counter[str]:
    """Return how often each request is paid for."""
    paid_for = receipts.c.outcome.in_(["completed", "abandoned"])
    with books.database.read() as connection:
        return Counter(connection.scalars(select(receipts.c.request_id).where(paid_for)))


@pytest.mark.slow
def test_killed_servers_bill_nothing_twice_and_lose_nothing_that_was_answered(books):
    books.credit("acme", "100")
    draw = random.Random(7)  # noqa: S311  (where to kill, not a secret)
    ends: list[tuple[str, str]] = []
    next_number, num_kills = 0, 0
    while next_number < REQUESTS:
        said = serve_until_killed(books, f"{num_kills}-", range(next_number, REQUESTS), draw.randrange(60, 200))
        books.check()  # at the moment of its death, with what it held
        ends += said
        next_number += max(len(said), 1)
        num_kills += 1
    assert num_kills >= 5
    books.server()  # as the next start does
    paid = billed(books)
    answered = {request_id for end, request_id in ends if end in {"answered", "left"}}
    assert set(paid.values()) == {1}
    assert answered <= set(paid)
    assert len(set(paid) - answered) <= num_kills * THREADS  # settled, and killed before it could say so
    assert not set(paid) & {request_id for end, request_id in ends if end == "refused"}
    balance, held, settled = books.account("acme")
    assert (held, books.holds()) == (0, [])
    assert balance + settled == nanos("100")
    with books.database.read() as connection:
        assert connection.execute(select(func.count()).where(receipts.c.outcome.is_(None))).scalar_one() == 0
        assert connection.execute(select(func.count()).select_from(owners)).scalar_one() == 1


def test_the_next_start_gives_back_what_a_killed_server_held(books, meta):
    books.credit("acme", "100")
    serve_until_killed(books, "a-", range(1, REQUESTS), 5)
    books.server()
    balance, held, settled = books.account("acme")
    assert held == 0
    assert balance + settled == nanos("100")


def test_two_servers_on_one_ledger_do_not_overspend(books):
    """The credit is for about half of what both try; every answer costs all that was held for it."""
    books.credit("acme", "0.005")
    servers = [start(books.url, "acme", f"{name}-", range(60), mode="all") for name in "ab"]
    ends: Counter[str] = Counter()
    for server in servers:
        with server:
            ends += Counter(line.split()[0] for line in server.stdout)
        assert server.returncode == 0
    assert sum(ends.values()) == 120
    assert ends["answered"] > 30
    assert ends["refused"] > 30
    balance, held, settled = books.account("acme")
    assert balance >= 0
    assert (held, balance + settled) == (0, nanos("0.005"))
