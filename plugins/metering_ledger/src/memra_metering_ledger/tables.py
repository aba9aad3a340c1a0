"""The ledger's tables, in words that SQLite and PostgreSQL share. Refuses to know what is done with them.

Money is in nanos of the ledger's currency (`money`), times are milliseconds since 1970. For every account
`balance + held + settled = credited`, whatever happens; `integrity` checks that, and what stands behind each sum.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    event,
)

FORMAT_VERSION = 1
"""Counts changes that older versions cannot read."""

metadata = MetaData()

facts = Table(
    "ledger_facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""`format` and `currency`."""

accounts = Table(
    "ledger_accounts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("balance", BigInteger, nullable=False, default=0),
    Column("held", BigInteger, nullable=False, default=0),
    Column("settled", BigInteger, nullable=False, default=0),
    Column("credited", BigInteger, nullable=False, default=0),
    Column("overdraft", BigInteger, nullable=False, default=0),
    Column("admission", Text, nullable=False, default="open"),
    Column("created_ms", BigInteger, nullable=False),
)
"""One a tenant. `credited`: credits less debits; `overdraft`: how far below zero a hold or a debit may go."""

principals = Table(
    "ledger_principals",
    metadata,
    Column("tenant", Text, ForeignKey(accounts.c.tenant), nullable=False),
    Column("principal", Text, nullable=False),
    Column("cap", BigInteger),
    Column("held", BigInteger, nullable=False, default=0),
    Column("settled", BigInteger, nullable=False, default=0),
    PrimaryKeyConstraint("tenant", "principal"),
)
"""What each key of a tenant has spent, and may spend at most; no `cap`: as much as the account."""

prices = Table(
    "ledger_prices",
    metadata,
    Column("price_id", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("cached_prompt", Text, nullable=False),
    Column("completion", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("is_current", Boolean, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
)
"""Exact decimals. A price is never changed: a new one takes its place, and bills keep naming the old one."""

owners = Table(
    "ledger_owners",
    metadata,
    Column("owner_id", Text, primary_key=True),
    Column("place", Text),
    Column("pid", Integer),
    Column("started_ticks", BigInteger),
    Column("beat", BigInteger, nullable=False, default=0),
    Column("since_ms", BigInteger, nullable=False),
)
"""Servers that hold money or have receipts open; see `owners.py`."""

receipts = Table(
    "ledger_receipts",
    metadata,
    Column("receipt_id", Text, primary_key=True),
    Column("request_id", Text, nullable=False, index=True),
    Column("owner_id", Text, ForeignKey(owners.c.owner_id), index=True),
    Column("tenant", Text, nullable=False),
    Column("principal", Text),
    Column("model", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("is_stream", Boolean, nullable=False),
    Column("max_tokens", BigInteger),
    Column("num_choices", Integer, nullable=False),
    Column("reserved_context_tokens", BigInteger),
    Column("price_id", Text, ForeignKey(prices.c.price_id)),
    Column("outcome", Text),
    Column("status", Integer),
    Column("code", Text),
    Column("prompt_tokens", BigInteger),
    Column("cached_prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cost", Text),
    Column("charged", BigInteger, nullable=False, default=0),
    Column("elapsed_ms", BigInteger),
    Column("opened_ms", BigInteger, nullable=False),
    Column("closed_ms", BigInteger),
)
"""One a request, refused ones too. An owner means open, an outcome closed; `cost` is exact, `charged` was paid."""

Index("ledger_receipts_by_tenant", receipts.c.tenant, receipts.c.closed_ms)

holds = Table(
    "ledger_holds",
    metadata,
    Column("hold_id", Text, primary_key=True),
    Column("owner_id", Text, ForeignKey(owners.c.owner_id), nullable=False, index=True),
    Column("tenant", Text, ForeignKey(accounts.c.tenant), nullable=False),
    Column("principal", Text),
    Column("price_id", Text, ForeignKey(prices.c.price_id), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("receipt_id", Text, ForeignKey(receipts.c.receipt_id), index=True),
    Column("since_ms", BigInteger, nullable=False),
)
"""Worst cases of requests that run; gone when they end."""

transfers = Table(
    "ledger_transfers",
    metadata,
    Column("tenant", Text, ForeignKey(accounts.c.tenant), nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("balance_after", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant", "idempotency_key"),
)
"""Credits and debits, each once."""

audit = Table(
    "ledger_audit",
    metadata,
    Column("entry_id", Integer, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("tenant", Text),
    Column("detail", Text, nullable=False),
)
"""Who changed what, beside the requests; `detail` is JSON. Rows can be added, and nothing else."""

_ONLY_ADDED_TO = {
    "sqlite": """
        CREATE TRIGGER ledger_audit_no_{change} BEFORE {change} ON ledger_audit
        BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END
    """,
    "postgresql": """
        CREATE OR REPLACE FUNCTION ledger_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit log can only be added to'; END $$;
        CREATE TRIGGER ledger_audit_no_{change} BEFORE {change} ON ledger_audit
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_audit_refuse()
    """,
}


@event.listens_for(audit, "after_create")
def _let_it_only_be_added_to(_table: Table, connection: Connection, **_options: object) -> None:
    for change in ("UPDATE", "DELETE"):
        connection.exec_driver_sql(_ONLY_ADDED_TO[connection.dialect.name].format(change=change))
