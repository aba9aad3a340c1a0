"""Servers that share a ledger, and what is done with the money of those that died.

A server writes itself down before it holds anything, and counts a beat up while it lives. Whoever watches is sure of a
death in one of two ways: it can look the process up, where that ran in the same place (boot of the machine and process
namespace) as itself; or the beat stood still for as long as it watched, on its own clock: no two clocks are compared. A
death closes the server's receipts as crashed, which nobody pays for, and gives its holds back.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import delete, exists, insert, select, update

from memra_metering_ledger import bills
from memra_metering_ledger.database import Database
from memra_metering_ledger.tables import holds, owners, receipts

LEASE_S = 30.0
"""How long a beat may stand still before a server elsewhere counts as dead; six beats."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, so that no later one is taken for it.

    Attributes:
        place: boot of the machine and process namespace; None where the system does not tell.
        started_ticks: of the system's clock, since its boot.
    """

    place: str | None
    pid: int
    started_ticks: int | None

    @staticmethod
    def this() -> "Process":
        """Return the process that runs this."""
        return Process(_place(), os.getpid(), _started_ticks(os.getpid()))

    def is_surely_dead(self) -> bool:
        """Whether it ran where we can look, and is not there any more."""
        if self.place is None or self.started_ticks is None or self.place != _place():
            return False
        return _started_ticks(self.pid) != self.started_ticks


def _place() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started_ticks(pid: int) -> int | None:
    """Return when a process started; None when it is not there, or is dead and only waits to be reaped.

    Fields 3 and 22 of proc_pid_stat(5); the name in field 2 may hold anything, so they are counted from its end.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 1 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


@dataclass
class Watch:
    """What one server saw of the others' beats.

    Attributes:
        seen: by owner, its beat and when that was seen first, in seconds of our monotonic clock.
    """

    lease_s: float = LEASE_S
    seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def find_dead(self, beats: Mapping[str, int], processes: Mapping[str, Process], *, now_s: float) -> Sequence[str]:
        """Take note of everybody's beat, and return who is dead."""
        self.seen = {owner: self._sight(owner, beat, now_s) for owner, beat in beats.items()}
        return [
            owner
            for owner, (_, since_s) in self.seen.items()
            if processes[owner].is_surely_dead() or now_s - since_s >= self.lease_s
        ]

    def _sight(self, owner: str, beat: int, now_s: float) -> tuple[int, float]:
        last = self.seen.get(owner)
        return last if last and last[0] == beat else (beat, now_s)


def beat(database: Database, owner_id: str, process: Process, *, now_ms: int) -> bool:
    """Say that a server lives; false when it was not written down before, or was taken for dead meanwhile."""
    with database.write() as connection:
        mine = update(owners).where(owners.c.owner_id == owner_id).values(beat=owners.c.beat + 1)
        if connection.execute(mine).rowcount == 1:
            return True
        connection.execute(
            insert(owners).values(
                owner_id=owner_id,
                place=process.place,
                pid=process.pid,
                started_ticks=process.started_ticks,
                since_ms=now_ms,
            )
        )
        return False


def bury_dead(database: Database, watch: Watch, *, own_id: str, now_ms: int, now_s: float) -> int:
    """Close what dead servers left, and return how many there were."""
    with database.read() as connection:
        others = connection.execute(select(owners).where(owners.c.owner_id != own_id)).all()
    processes = {row.owner_id: Process(row.place, row.pid, row.started_ticks) for row in others}
    dead = watch.find_dead({row.owner_id: row.beat for row in others}, processes, now_s=now_s)
    for owner_id in dead:
        release_owner(database, owner_id, now_ms=now_ms)
    return len(dead)


def release_owner(database: Database, owner_id: str, *, now_ms: int) -> None:
    """Close a server's receipts as crashed, give its holds back and strike it out.

    One transaction each, so that it may be cut short, and done by several at once; a server that turns out to live, and
    holds something new meanwhile, stays.
    """
    with database.read() as connection:
        open_receipts = connection.scalars(select(receipts.c.receipt_id).where(receipts.c.owner_id == owner_id)).all()
        open_holds = connection.scalars(select(holds.c.hold_id).where(holds.c.owner_id == owner_id)).all()
    for receipt_id in open_receipts:
        with database.write() as connection:
            bills.crash_receipt(connection, receipt_id, now_ms=now_ms)
    for hold_id in open_holds:
        with database.write() as connection:
            bills.release_hold(connection, hold_id)
    holds_something = exists().where(holds.c.owner_id == owner_id) | exists().where(receipts.c.owner_id == owner_id)
    with database.write() as connection:
        connection.execute(delete(owners).where(owners.c.owner_id == owner_id, ~holds_something))
