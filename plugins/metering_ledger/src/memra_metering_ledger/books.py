"""The moves of money between an account's purses: hold, release, settle, credit, debit. Each is part of a transaction.

Accounts are locked first, everywhere, so that no two transactions wait for each other. Sums are made here, in Python's
integers, so that no database can round or overflow them. Refuses to know requests.
"""

from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from memra_metering_ledger.errors import LedgerRequestError
from memra_metering_ledger.money import MAX_NANOS
from memra_metering_ledger.tables import accounts, principals

OPEN = "open"
BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant's purses, in nanos, as they were when its row was locked."""

    tenant: str
    balance: int
    held: int
    settled: int
    credited: int
    overdraft: int
    admission: str

    @property
    def spendable(self) -> int:
        """What may still be held or taken away."""
        return self.balance + self.overdraft


@dataclass(frozen=True, slots=True)
class Spending:
    """What a key of a tenant holds and has spent, in nanos."""

    tenant: str
    principal: str
    cap: int | None
    held: int
    settled: int

    def can_spend(self, amount: int) -> bool:
        """Whether so much more stays below the cap, counting what is held as spent."""
        return self.cap is None or self.held + self.settled + amount <= self.cap


def find_account(connection: Connection, tenant: str, *, for_update: bool = False) -> Account | None:
    """Return a tenant's account, or None where it is not enrolled.

    Args:
        connection: of a transaction.
        tenant: whose.
        for_update: keep everybody else from changing it until the transaction ends.
    """
    columns = [accounts.c[name] for name in Account.__dataclass_fields__]
    query = select(*columns).where(accounts.c.tenant == tenant)
    row = connection.execute(query.with_for_update() if for_update else query).one_or_none()
    return None if row is None else Account(*row)


def enrol(connection: Connection, tenant: str, *, now_ms: int) -> Account:
    """Return a tenant's account, locked, and open one where there is none; two may do so at once."""
    account = find_account(connection, tenant, for_update=True)
    if account is not None:
        return account
    insert_new = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(insert_new(accounts).values(tenant=tenant, created_ms=now_ms).on_conflict_do_nothing())
    return enrol(connection, tenant, now_ms=now_ms)


def find_spending(connection: Connection, account: Account, principal: str) -> Spending:
    """Return what a key has spent, and begin to count where it is new; the account must be locked."""
    columns = [principals.c[name] for name in Spending.__dataclass_fields__]
    query = select(*columns).where(principals.c.tenant == account.tenant, principals.c.principal == principal)
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is not None:
        return Spending(*row)
    connection.execute(insert(principals).values(tenant=account.tenant, principal=principal))
    return Spending(account.tenant, principal, cap=None, held=0, settled=0)


def hold(connection: Connection, account: Account, spending: Spending | None, amount: int) -> None:
    """Put an amount aside; the caller has seen that it may."""
    _store(connection, replace(account, balance=account.balance - amount, held=account.held + amount))
    if spending:
        _store_spending(connection, replace(spending, held=spending.held + amount))


def settle(connection: Connection, account: Account, spending: Spending | None, *, held: int, charge: int) -> None:
    """Give a hold back, and take what is charged; a charge of 0 is a release, a hold of 0 a charge on the balance."""
    _store(
        connection,
        replace(
            account,
            balance=account.balance + held - charge,
            held=account.held - held,
            settled=account.settled + charge,
        ),
    )
    if spending:
        changed = replace(spending, held=spending.held - held, settled=spending.settled + charge)
        _store_spending(connection, changed)


def move(connection: Connection, account: Account, amount: int) -> int:
    """Credit an account, or debit it where the amount is negative, and return its balance.

    Raises:
        LedgerRequestError: `insufficient_balance`: it would go below what its overdraft allows; or
            `amount_too_large`: no ledger counts that far.
    """
    changed = replace(account, balance=account.balance + amount, credited=account.credited + amount)
    if amount < 0 and changed.spendable < 0:
        message = f"tenant {account.tenant!r} has less than that; debit no more than its balance"
        raise LedgerRequestError(message, code="insufficient_balance")
    if max(abs(changed.balance), abs(changed.credited)) > MAX_NANOS:
        raise LedgerRequestError("the balance would be too large for a ledger", code="amount_too_large")
    _store(connection, changed)
    return changed.balance


def _store(connection: Connection, account: Account) -> None:
    purses = {name: getattr(account, name) for name in ("balance", "held", "settled", "credited")}
    connection.execute(update(accounts).where(accounts.c.tenant == account.tenant).values(**purses))


def _store_spending(connection: Connection, spending: Spending) -> None:
    mine = (principals.c.tenant == spending.tenant) & (principals.c.principal == spending.principal)
    connection.execute(update(principals).where(mine).values(held=spending.held, settled=spending.settled))
