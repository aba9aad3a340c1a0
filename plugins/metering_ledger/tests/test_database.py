"""Where a ledger may lie, and what happens when it cannot be had."""

import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from memra_metering_ledger.config import DATABASE_VARIABLE, database_url
from memra_metering_ledger.database import Database
from memra_metering_ledger.errors import LedgerFormatError, LedgerUnavailableError
from memra_metering_ledger.integrity import find_contradictions
from memra_metering_ledger.tables import accounts, facts
from sqlalchemy import insert, select, text, update


@pytest.mark.parametrize("url", ["mysql://host/name", "sqlite://", "sqlite:///:memory:", "ledger.sqlite3", ""])
def test_an_address_of_another_kind_is_refused(url):
    with pytest.raises(LedgerFormatError):
        Database(url)


def test_the_environment_goes_before_the_file(monkeypatch):
    assert database_url("sqlite:////configured") == "sqlite:////configured"
    monkeypatch.setenv(DATABASE_VARIABLE, "postgresql://host/name")
    assert database_url("sqlite:////configured") == "postgresql://host/name"


def test_a_ledger_lies_in_the_user_s_data_directory_when_nothing_is_said():
    assert database_url(None).startswith("sqlite:////")


def test_a_password_is_in_no_message():
    database = Database("postgresql://user:secret@127.0.0.1:1/name")
    with pytest.raises(LedgerUnavailableError) as caught:
        database.prepare("USD")
    assert "secret" not in caught.value.message
    database.close()


def test_nobody_else_reads_a_new_file(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'new' / 'ledger.sqlite3'}")
    database.prepare("USD")
    database.close()
    assert stat.S_IMODE((tmp_path / "new" / "ledger.sqlite3").stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailableError, match="file/ledger"):
        Database(f"sqlite:///{tmp_path / 'file' / 'ledger.sqlite3'}")


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path):
    (tmp_path / "text").write_text("no ledger at all, but long enough to be taken for one" * 20)
    database = Database(f"sqlite:///{tmp_path / 'text'}")
    with pytest.raises(LedgerUnavailableError, match="not a database"):
        database.prepare("USD")
    database.close()


def test_a_ledger_keeps_its_currency(books):
    with pytest.raises(LedgerFormatError, match="currency is 'USD', not 'EUR'"):
        books.database.prepare("EUR")


def test_a_ledger_of_a_later_version_is_refused(books):
    with books.database.write() as connection:
        connection.execute(update(facts).where(facts.c.name == "format").values(value="99"))
    with pytest.raises(LedgerFormatError, match="format is '99'"):
        books.database.prepare("USD")


def test_many_may_make_one_ledger_at_once(url):
    databases = [Database(url) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda database: database.prepare("USD"), databases))
    with databases[0].read() as connection:
        assert connection.execute(select(facts)).all() == [("format", "1"), ("currency", "USD")]
    for database in databases:
        database.close()


def test_an_exception_undoes_what_was_written(books):
    def write_and_fail() -> None:
        with books.database.write() as connection:
            connection.execute(insert(accounts).values(tenant="acme", created_ms=1))
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert books.desk.find_account("acme") is None


def test_a_reader_waits_for_no_writer(impatient_books):
    impatient_books.credit("acme", "1")
    with impatient_books.database.write() as connection:
        connection.execute(update(accounts).values(admission="blocked"))
        assert impatient_books.desk.count_admissions() == {"open": 1, "blocked": 0}


def test_a_thread_that_waits_too_long_for_its_turn_is_told(impatient_books):
    waits, told = threading.Event(), threading.Event()

    def occupy() -> None:
        with impatient_books.database.write():
            waits.set()
            told.wait(10)

    _ = impatient_books.database
    with ThreadPoolExecutor(1) as threads:
        occupier = threads.submit(occupy)
        waits.wait(10)
        with pytest.raises(LedgerUnavailableError, match="locked"), impatient_books.database.write():
            pass
        told.set()
        occupier.result()


def test_settled_requests_are_on_the_disk(sqlite_url):
    """`synchronous=FULL` (2): the log is synced by every commit, before an answer's last bytes are sent."""
    database = Database(sqlite_url)
    with database.read() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar_one() == 2
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
    database.close()


def test_connections_that_the_database_cut_are_made_anew(make_books, postgresql_url):
    books = make_books(postgresql_url)
    books.credit("acme", "1")
    other = make_books(postgresql_url)
    with other.database.write() as connection:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = :name"
        connection.execute(text(cut), {"name": postgresql_url.split("/")[3].split("?")[0]})
    assert books.account("acme")[0] == 10**9
    books.close()
    other.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE ledger_accounts SET balance = balance + 1",
        "UPDATE ledger_accounts SET held = held + 1, balance = balance - 1",
        "UPDATE ledger_accounts SET settled = settled + 1, balance = balance - 1",
        "UPDATE ledger_accounts SET credited = credited + 1, balance = balance + 1",
        "UPDATE ledger_principals SET settled = 1",
        "DELETE FROM ledger_transfers",
    ],
)
def test_a_contradiction_is_found(make_books, sqlite_url, damage):
    books = make_books(sqlite_url)
    books.credit("acme", "1")
    books.desk.set_cap("acme", "k", 1)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute(damage)
    connection.close()
    with books.database.read() as reading:
        assert find_contradictions(reading)
    books.close()
