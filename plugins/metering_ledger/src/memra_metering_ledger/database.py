"""Transactions on SQLite or PostgreSQL: one at a time where it must be, and never longer than a request can wait.

SQLite has one writer: a lock puts this process's threads in line (its own waiting is by chance), `BEGIN IMMEDIATE` the
processes. PostgreSQL locks rows, which `books` asks for. Refuses to know what the tables mean.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, make_url, select, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from memra_metering_ledger.errors import LedgerFormatError, LedgerUnavailableError
from memra_metering_ledger.tables import FORMAT_VERSION, facts, metadata

TIMEOUT_S = 2.0
"""For a lock, and for a statement: two of them stay below the 5 s that a plugin has by default."""

_NUM_CONNECTIONS = 8
_SCHEMA_LOCK = 0x6D656D72
"""Any number that nobody else locks in PostgreSQL."""


class Database:
    """Where a ledger lies. Safe to use from any thread."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Prepare connections; none is opened yet.

        Raises:
            LedgerFormatError: no address, or one of another kind of database.
        """
        self._timeout_s = timeout_s
        self._engine = _engine(url, timeout_s)
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        self._turn = threading.Lock()

    @property
    def address(self) -> str:
        """The address without its password, for messages."""
        return self._engine.url.render_as_string(hide_password=True)

    def prepare(self, currency: str) -> None:
        """Make the tables where there are none, and check those that are there.

        Raises:
            LedgerFormatError: they are a later version's, or count in another currency.
            LedgerUnavailableError: the database does not answer.
        """
        with self.write() as connection:
            if not self._is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
            metadata.create_all(connection)
            found = {row.name: row.value for row in connection.execute(select(facts))}
            wanted = {"format": str(FORMAT_VERSION), "currency": currency}
            for name, value in wanted.items():
                if name not in found:
                    connection.execute(insert(facts).values(name=name, value=value))
                elif found[name] != value:
                    raise LedgerFormatError(
                        f"ledger {self.address}: {name} is {found[name]!r}, not {value!r}; name another database"
                    )

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Run a transaction that changes something; an exception undoes it.

        Raises:
            LedgerUnavailableError: the database does not answer, or its lock was not to be had in time.
        """
        if self._is_sqlite and not self._turn.acquire(timeout=self._timeout_s):
            raise LedgerUnavailableError(f"ledger {self.address}: locked by another request for {self._timeout_s} s")
        try:
            with self._transaction(self._engine) as connection:
                yield connection
        finally:
            if self._is_sqlite:
                self._turn.release()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a transaction that changes nothing, and waits for no writer.

        Raises:
            LedgerUnavailableError: the database does not answer.
        """
        one_moment: dict[str, Any] = {} if self._is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._transaction(self._engine.execution_options(ledger_reads=True, **one_moment)) as connection:
            yield connection

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            cause = " ".join(str(getattr(error, "orig", error)).split())
            raise LedgerUnavailableError(f"ledger {self.address}: {cause}; see to the database") from error

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _engine(address: str, timeout_s: float) -> Engine:
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise LedgerFormatError(
            "the ledger's database is no address; write sqlite:////path or postgresql://..."
        ) from error
    kind = url.get_backend_name()
    if kind in {"postgresql", "postgres"}:
        return _postgresql_engine(url.set(drivername="postgresql+psycopg"), timeout_s)
    if kind == "sqlite" and url.database and url.database != ":memory:":
        return _sqlite_engine(url.set(drivername="sqlite+pysqlite"), timeout_s)
    raise LedgerFormatError(f"a ledger cannot lie in {kind!r}; use a file of SQLite, or PostgreSQL")


def _sqlite_engine(url: URL, timeout_s: float) -> Engine:
    path = Path(str(url.database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # nobody else reads who pays for what
    except OSError as error:
        raise LedgerUnavailableError(f"ledger {path}: {error.strerror}; name a file that can be written") from error
    engine = create_engine(
        url, connect_args={"timeout": timeout_s}, pool_size=_NUM_CONNECTIONS, max_overflow=-1, pool_timeout=timeout_s
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, and not by guesses of the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get("ledger_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _postgresql_engine(url: URL, timeout_s: float) -> Engine:
    milliseconds = round(timeout_s * 1000)
    limits = f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
    try:
        return create_engine(
            url,
            connect_args={
                "connect_timeout": max(2, round(timeout_s)),  # libpq takes no less
                "tcp_user_timeout": milliseconds,
                "options": limits,
            },
            pool_size=_NUM_CONNECTIONS,
            max_overflow=_NUM_CONNECTIONS,
            pool_timeout=timeout_s,
            pool_pre_ping=True,
        )
    except ModuleNotFoundError as error:
        raise LedgerFormatError("PostgreSQL needs its driver; install memra-metering-ledger[postgresql]") from error
