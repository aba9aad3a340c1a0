"""Ledgers to test on: a new SQLite file, and a new database of a PostgreSQL that these tests start themselves."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from memra_metering_ledger.bills import new_id
from memra_metering_ledger.config import DATABASE_VARIABLE, PriceTable
from memra_metering_ledger.database import Database
from memra_metering_ledger.desk import Desk, Transfer
from memra_metering_ledger.integrity import find_contradictions
from memra_metering_ledger.metering import LedgerMetering
from memra_metering_ledger.money import nanos
from memra_metering_ledger.tables import holds, receipts
from sqlalchemy import create_engine, select, text

from memra.plugins import RequestMeta
from memra.types import Lane, ModelName, RequestId

MODEL = ModelName("tiny")
PRICES = {MODEL: PriceTable(prompt="0.000001", cached_prompt="0.00000025", completion="0.000004", request="0.00001")}


@pytest.fixture(autouse=True)
def _no_ledger_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)


def _server_binaries() -> Path:
    """Return where `initdb` and `pg_ctl` lie; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and not on_path:
        pytest.skip("PostgreSQL's server is not installed (initdb was not found)")
    return Path(on_path).parent if on_path else found[-1].parent


def _unprivileged() -> dict[str, Any]:
    """Return how to run what refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return {}


@pytest.fixture(scope="session")
def postgresql_cluster() -> Iterator[str]:
    """Give the address of a server of our own, on a socket in a folder of our own, without a port."""
    binaries, identity = _server_binaries(), _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    if identity:
        os.chown(folder, identity["user"], identity["group"])
    folder.chmod(0o700)

    def run(program: str, *arguments: str) -> None:
        subprocess.run([binaries / program, *arguments], check=True, cwd="/", stdout=subprocess.DEVNULL, **identity)

    data = str(folder / "data")
    try:
        run("initdb", "-D", data, "-U", "ledger", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c full_page_writes=off -c max_connections=200"
        run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://ledger@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"


@pytest.fixture
def postgresql_url(postgresql_cluster: str) -> Iterator[str]:
    name = f"ledger_{new_id()}"
    address = postgresql_cluster.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield postgresql_cluster.replace("/postgres?", f"/{name}?")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Give the address of an empty database; a test that asks for it runs on both kinds."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@dataclass
class Books:
    """A ledger, as a test looks at it and acts on it.

    Attributes:
        servers: that run on it, ended with the test.
    """

    url: str
    timeout_s: float = 2.0
    servers: list[LedgerMetering] = field(default_factory=list)

    @cached_property
    def database(self) -> Database:
        database = Database(self.url, timeout_s=self.timeout_s)
        database.prepare("USD")
        Desk(database, actor="test").set_prices(PRICES)
        return database

    @cached_property
    def desk(self) -> Desk:
        return Desk(self.database, actor="test")

    def credit(self, tenant: str, amount: str) -> None:
        self.desk.transfer(Transfer(tenant, nanos(amount), new_id()))

    def server(self, *, enforce: bool = True) -> LedgerMetering:
        """Start a server whose rounds are done by the test."""
        _ = self.database
        metering = LedgerMetering(Database(self.url, timeout_s=self.timeout_s), enforce=enforce)
        metering._housekeeper.look_after()
        self.servers.append(metering)
        return metering

    def account(self, tenant: str) -> tuple[int, int, int]:
        """Return balance, held and settled, in nanos."""
        found = self.desk.find_account(tenant)
        assert found
        return found.balance, found.held, found.settled

    def receipt(self, request_id: str) -> Any:
        with self.database.read() as connection:
            return connection.execute(select(receipts).where(receipts.c.request_id == request_id)).one()

    def holds(self) -> list[Any]:
        with self.database.read() as connection:
            return list(connection.execute(select(holds)).all())

    def check(self) -> None:
        with self.database.read() as connection:
            assert find_contradictions(connection) == []

    def close(self) -> None:
        for server in self.servers:
            server.stop()
        self.database.close()


@pytest.fixture
def books(url: str) -> Iterator[Books]:
    """Give a ledger of either kind; it must agree with itself when the test ends."""
    made = Books(url)
    yield made
    made.check()
    made.close()


@pytest.fixture
def impatient_books(sqlite_url: str) -> Iterator[Books]:
    """Give a ledger on SQLite that waits 50 ms for a lock."""
    made = Books(sqlite_url, timeout_s=0.05)
    yield made
    made.check()
    made.close()


@pytest.fixture(scope="session")
def make_books() -> Callable[[str], Books]:
    return Books


@pytest.fixture(scope="session")
def meta() -> Callable[..., RequestMeta]:
    def make(request_id: str, tenant: str = "acme", **changed: Any) -> RequestMeta:
        known = {
            "principal": None,
            "model": MODEL,
            "route": "/v1/chat/completions",
            "lane": Lane.INTERACTIVE,
            "is_stream": True,
        }
        return RequestMeta(request_id=RequestId(request_id), tenant=tenant, **known | changed)

    return make
