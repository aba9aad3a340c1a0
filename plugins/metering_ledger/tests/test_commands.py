"""`memra ledger`, as a command line that memra hands over."""

import argparse
import csv
import io
import json

import pytest
from memra_metering_ledger.commands import ledger_command
from memra_metering_ledger.config import LedgerConfig
from memra_metering_ledger.errors import LedgerRequestError

from memra.plugins import UsageCounts
from memra.types import ModelName


@pytest.fixture
def ledger(books, capsys):
    """Give what runs a command line on a ledger, and returns its exit code and what it printed."""
    command = ledger_command(lambda: LedgerConfig(database=books.url))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = command.run(parser.parse_args(words))
        return code, capsys.readouterr().out

    return run


def answer(ran) -> object:
    code, out = ran
    assert code == 0
    return json.loads(out)


def test_a_ledger_is_made_and_made_again(ledger):
    assert ledger("init")[0] == 0
    assert "is ready" in ledger("init")[1]


def test_money_comes_and_goes_once(ledger):
    credit = ("credit", "acme", "12.50", "--idempotency-key", "k1")
    expected = {"tenant": "acme", "balance": "12.5", "idempotency_key": "k1"}
    assert answer(ledger(*credit)) == expected
    assert answer(ledger(*credit)) == expected
    assert answer(ledger("debit", "acme", "2", "--reason", "spoilt"))["balance"] == "10.5"
    assert answer(ledger("balance", "acme")) == {
        "tenant": "acme",
        "enrolled": True,
        "admission": "open",
        "balance": "10.5",
        "held": "0",
        "settled": "0",
        "credited": "10.5",
        "overdraft": "0",
    }
    assert answer(ledger("balance", "nobody")) == {"tenant": "nobody", "enrolled": False}


@pytest.mark.parametrize(
    "words",
    [
        ("credit", "acme", "-1"),
        ("credit", "acme", "0"),
        ("debit", "acme", "1"),
        ("credit", "a b", "1"),
        ("usage", "acme", "--from", "yesterday"),
        ("price", "m", "--prompt", "0.1e-3", "--completion", "1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(ledger, words):
    words = [f"={word}" if word == "-1" else word for word in words]
    with pytest.raises(LedgerRequestError) as caught:
        ledger(*words)
    assert "\n" not in caught.value.message


def test_prices_are_set_and_shown(ledger):
    words = ("price", "m", "--prompt", "0.25", "--cached-prompt", "0.1", "--completion", "1", "--request", "2")
    assert answer(ledger(*words)) == {"changed": ["m"]}
    assert answer(ledger(*words)) == {"changed": []}
    expected = {"model": "m", "prompt": "0.25", "cached_prompt": "0.1", "completion": "1", "request": "2"}
    assert answer(ledger("prices")) == [expected]


def test_admission_caps_and_overdrafts_are_audited_with_the_user(ledger):
    ledger("enrol", "acme", "--overdraft", "5")
    ledger("cap", "acme", "mk-acme-1", "3.5")
    ledger("cap", "acme", "mk-acme-1", "none")
    ledger("admission", "acme", "blocked")
    entries = answer(ledger("audit", "--limit", "4"))
    assert [entry["action"] for entry in entries] == ["admission", "cap", "cap", "enrol"]
    assert entries[2]["detail"] == {"principal": "mk-acme-1", "cap": 3_500_000_000}
    assert all(entry["actor"].startswith("command line: ") for entry in entries)


def test_usage_is_shown_as_json_and_as_csv(ledger, books, meta):
    books.credit("acme", "1")
    server = books.server()
    permit = server.reserve("acme", principal="k", model=ModelName("tiny"), prompt_tokens=9, completion_bound=9)
    server.open(meta("r1", principal="k"), permit).complete(UsageCounts(9, 0, 9), elapsed_s=1)
    assert answer(ledger("usage", "acme"))["usage"]["total_tokens"] == 18
    assert answer(ledger("usage", "acme", "--until", "2020-01-31"))["requests"] == 0
    code, out = ledger("usage", "acme", "--csv")
    assert code == 0
    assert next(csv.DictReader(io.StringIO(out)))["principal"] == "k"


def test_books_that_agree_are_said_to(ledger):
    assert answer(ledger("check")) == {"contradictions": []}
