"""The audit log: who changed what, beside the requests themselves. It can be added to and read, and nothing else."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from memra_metering_ledger.tables import audit


@dataclass(frozen=True, slots=True)
class Act:
    """Something that an operator did.

    Attributes:
        detail: plain values.
    """

    actor: str
    action: str
    tenant: str | None
    detail: Mapping[str, Any]


def note(connection: Connection, act: Act, *, now_ms: int) -> None:
    """Write down an act, in the transaction that carries it out."""
    detail = json.dumps(act.detail, sort_keys=True)
    entry = insert(audit).values(at_ms=now_ms, actor=act.actor, action=act.action, tenant=act.tenant, detail=detail)
    connection.execute(entry)


def last_entries(connection: Connection, limit: int) -> Sequence[dict[str, Any]]:
    """Return the newest acts, newest first."""
    rows = connection.execute(select(audit).order_by(audit.c.entry_id.desc()).limit(limit))
    return [{**row._mapping, "detail": json.loads(row.detail)} for row in rows]  # noqa: SLF001  (public in SQLAlchemy)
