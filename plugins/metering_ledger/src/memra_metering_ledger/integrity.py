"""Whether the books agree with themselves: every sum, and what stands behind it."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, case, func, select

from memra_metering_ledger.tables import accounts, holds, principals, receipts, transfers


def find_contradictions(connection: Connection) -> Sequence[str]:
    """Return a line for every contradiction; none is what must come back, at any time and after any crash.

    The transaction must see one moment (`Database.read`).
    """
    return [*_account_lines(connection), *_principal_lines(connection), *_receipt_lines(connection)]


def _account_lines(connection: Connection) -> Iterator[str]:
    held = _sums(connection, holds, holds.c.amount, "tenant")
    settled = _sums(connection, receipts, receipts.c.charged, "tenant")
    signed = case((transfers.c.kind == "debit", -transfers.c.amount), else_=transfers.c.amount)
    credited = _sums(connection, transfers, signed, "tenant")
    for row in connection.execute(select(accounts)):
        if row.balance + row.held + row.settled != row.credited:
            yield f"tenant {row.tenant}: balance, held and settled do not add up to what was credited"
        if row.held != held.get((row.tenant,), 0):
            yield f"tenant {row.tenant}: {row.held} held, but the holds are {held.get((row.tenant,), 0)}"
        if row.settled != settled.get((row.tenant,), 0):
            yield f"tenant {row.tenant}: {row.settled} settled, but receipts say {settled.get((row.tenant,), 0)}"
        if row.credited != credited.get((row.tenant,), 0):
            yield f"tenant {row.tenant}: {row.credited} credited, but transfers say {credited.get((row.tenant,), 0)}"
        if row.held < 0 or row.settled < 0:
            yield f"tenant {row.tenant}: held or settled is below zero"


def _principal_lines(connection: Connection) -> Iterator[str]:
    held = _sums(connection, holds, holds.c.amount, "tenant", "principal")
    settled = _sums(connection, receipts, receipts.c.charged, "tenant", "principal")
    for row in connection.execute(select(principals)):
        key = (row.tenant, row.principal)
        if (row.held, row.settled) != (held.get(key, 0), settled.get(key, 0)):
            yield f"key {row.principal} of tenant {row.tenant}: its sums are not those of its holds and receipts"


def _receipt_lines(connection: Connection) -> Iterator[str]:
    both = receipts.c.owner_id.is_not(None) == receipts.c.outcome.is_not(None)
    for row in connection.execute(select(receipts.c.receipt_id).where(both)):
        yield f"receipt {row.receipt_id}: must be either open or closed"
    closed = select(holds.c.hold_id).join(receipts, holds.c.receipt_id == receipts.c.receipt_id)
    for row in connection.execute(closed.where(receipts.c.outcome.is_not(None))):
        yield f"hold {row.hold_id}: its receipt is closed"


def _sums(connection: Connection, table: Table, amount: Any, *by: str) -> dict[tuple[str, ...], int]:
    columns = [table.c[name] for name in by]
    rows = connection.execute(select(*columns, func.sum(amount)).group_by(*columns))
    return {tuple(row[:-1]): int(row[-1]) for row in rows}
