"""What an operator does with a ledger, from the command line or over the admin listener: each act once, and audited.

Refuses to know how it is asked; answers are plain values, as they go into JSON.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from memra_metering_ledger import audit, books
from memra_metering_ledger.bills import word
from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.database import Database
from memra_metering_ledger.errors import LedgerRequestError
from memra_metering_ledger.housekeeping import now_ms
from memra_metering_ledger.money import MAX_NANOS, NANOS_IN_MICRO, Prices
from memra_metering_ledger.price_list import current_prices, read_prices, set_price
from memra_metering_ledger.tables import accounts, principals, transfers

_TENANT = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
_MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class Transfer:
    """Money that comes or goes, beside the requests.

    Attributes:
        amount: nanos, above 0; a debit takes them away.
        idempotency_key: the caller's name for it: the same one, sent again, moves nothing again.
    """

    tenant: str
    amount: int
    idempotency_key: str
    reason: str = ""
    is_debit: bool = False

    def check(self) -> None:
        """Refuse what can be no transfer.

        Raises:
            LedgerRequestError: says what is wrong with it.
        """
        check_tenant(self.tenant)
        if not 0 < self.amount <= MAX_NANOS:
            raise LedgerRequestError("the amount must be above 0, and less than a ledger holds", code="invalid_amount")
        if not (0 < len(self.idempotency_key) <= _MAX_KEY and self.idempotency_key.isprintable()):
            message = f"the idempotency key must be 1 to {_MAX_KEY} printable characters"
            raise LedgerRequestError(message, code="invalid_idempotency_key")
        if self.is_debit and not self.reason.strip():
            raise LedgerRequestError("a debit needs a reason", code="invalid_reason")
        if word(self.reason) != self.reason:
            raise LedgerRequestError("the reason must be at most 256 characters of text", code="invalid_reason")


def check_tenant(tenant: str) -> None:
    """Refuse what cannot be a tenant's name.

    Raises:
        LedgerRequestError: `invalid_tenant`.
    """
    if not _TENANT.fullmatch(tenant):
        message = "a tenant's name has 1 to 128 letters, digits, '-' and '_'"
        raise LedgerRequestError(message, code="invalid_tenant")


class Desk:
    """Acts of an operator.

    Attributes:
        actor: who acts, for the audit log.
    """

    def __init__(self, database: Database, *, actor: str) -> None:
        """Stand on a prepared database."""
        self._database = database
        self._actor = actor

    def transfer(self, order: Transfer) -> int:
        """Credit or debit a tenant; a credit enrols it. Sent again, it answers as it did, and moves nothing.

        Returns:
            The balance after it, in nanos.

        Raises:
            LedgerRequestError: `idempotency_conflict`, `tenant_not_enrolled`, `insufficient_balance`, or malformed.
        """
        order.check()
        amount = -order.amount if order.is_debit else order.amount
        with self._database.write() as connection:
            if order.is_debit:
                account = _enrolled(connection, order.tenant)
            else:
                account = books.enrol(connection, order.tenant, now_ms=now_ms())
            earlier = _earlier_transfer(connection, order)
            if earlier is not None:
                return earlier
            balance = books.move(connection, account, amount)
            kind = "debit" if order.is_debit else "credit"
            content = {"idempotency_key": order.idempotency_key, "amount": order.amount, "reason": order.reason}
            connection.execute(
                insert(transfers).values(
                    tenant=order.tenant, kind=kind, balance_after=balance, at_ms=now_ms(), **content
                )
            )
            self._note(connection, kind, order.tenant, content | {"balance": balance})
        return balance

    def enrol(self, tenant: str, *, overdraft: int | None = None) -> None:
        """Open an account, or change how far below zero it may go (nanos)."""
        check_tenant(tenant)
        if overdraft is not None and not 0 <= overdraft <= MAX_NANOS // 2:
            raise LedgerRequestError("the overdraft must not be negative, nor that large", code="invalid_overdraft")
        with self._database.write() as connection:
            account = books.enrol(connection, tenant, now_ms=now_ms())
            limit = account.overdraft if overdraft is None else overdraft
            connection.execute(update(accounts).where(accounts.c.tenant == tenant).values(overdraft=limit))
            self._note(connection, "enrol", tenant, {"overdraft": limit})

    def set_admission(self, tenant: str, mode: str, *, expected: str | None = None) -> None:
        """Open or block a tenant.

        Args:
            tenant: whose.
            mode: `open` or `blocked`.
            expected: what it must be now; None: whatever it is.

        Raises:
            LedgerRequestError: `admission_mode_conflict`: it is not what was expected; or `invalid_admission_mode`.
        """
        if mode not in {books.OPEN, books.BLOCKED}:
            raise LedgerRequestError(f"the mode must be {books.OPEN} or {books.BLOCKED}", code="invalid_admission_mode")
        with self._database.write() as connection:
            account = _enrolled(connection, tenant)
            if expected is not None and account.admission != expected:
                message = f"the admission of tenant {tenant!r} is {account.admission}"
                raise LedgerRequestError(message, code="admission_mode_conflict")
            connection.execute(update(accounts).where(accounts.c.tenant == tenant).values(admission=mode))
            self._note(connection, "admission", tenant, {"from": account.admission, "to": mode})

    def set_cap(self, tenant: str, principal: str, cap: int | None) -> None:
        """Say what a key may spend at most, all its life long (nanos); None: as much as the account."""
        if not principal or word(principal) != principal:
            raise LedgerRequestError("a key's name has 1 to 256 characters of text", code="invalid_principal")
        with self._database.write() as connection:
            account = _enrolled(connection, tenant)
            books.find_spending(connection, account, principal)
            mine = (principals.c.tenant == tenant) & (principals.c.principal == principal)
            connection.execute(update(principals).where(mine).values(cap=cap))
            self._note(connection, "cap", tenant, {"principal": principal, "cap": cap})

    def set_prices(self, tables: Mapping[str, PriceTable]) -> Sequence[str]:
        """Put prices in the place of old ones, and return the models whose prices changed.

        Raises:
            LedgerRequestError: `invalid_price`: one is no exact decimal.
        """
        wanted = {model: _read(model, table) for model, table in tables.items()}
        changed = []
        with self._database.write() as connection:
            for model, new in wanted.items():
                if set_price(connection, model, new, now_ms=now_ms()):
                    changed.append(model)
                    listed = next(price for price in current_prices(connection) if price.model == model)
                    self._note(connection, "price", None, dict(listed.report()))
        return changed

    def list_prices(self) -> Sequence[dict[str, str]]:
        """Return what every model costs now, in exact decimals."""
        with self._database.read() as connection:
            return [price.report() for price in current_prices(connection)]

    def find_account(self, tenant: str) -> books.Account | None:
        """Return a tenant's account as it is now; None where it is not enrolled."""
        with self._database.read() as connection:
            return books.find_account(connection, tenant)

    def count_admissions(self) -> dict[str, int]:
        """Return how many tenants are open, and how many blocked."""
        query = select(accounts.c.admission, func.count()).group_by(accounts.c.admission)
        with self._database.read() as connection:
            counted = {row[0]: int(row[1]) for row in connection.execute(query)}
        return {mode: counted.get(mode, 0) for mode in (books.OPEN, books.BLOCKED)}

    def list_audit(self, limit: int = 100) -> Sequence[dict[str, Any]]:
        """Return the newest acts, newest first."""
        with self._database.read() as connection:
            return audit.last_entries(connection, limit)

    def _note(self, connection: Connection, action: str, tenant: str | None, detail: dict[str, Any]) -> None:
        audit.note(connection, audit.Act(self._actor, action, tenant, detail), now_ms=now_ms())


def micros(amount: int) -> int:
    """Return nanos as whole micros, rounded down: never more than there is."""
    return amount // NANOS_IN_MICRO


def _enrolled(connection: Connection, tenant: str) -> books.Account:
    check_tenant(tenant)
    account = books.find_account(connection, tenant, for_update=True)
    if account is None:
        raise LedgerRequestError(f"tenant {tenant!r} is not enrolled; credit it first", code="tenant_not_enrolled")
    return account


def _earlier_transfer(connection: Connection, order: Transfer) -> int | None:
    """Return the balance after an equal transfer of that key; None where there was none; the account must be locked."""
    mine = (transfers.c.tenant == order.tenant) & (transfers.c.idempotency_key == order.idempotency_key)
    found = connection.execute(select(transfers).where(mine)).one_or_none()
    if found is None:
        return None
    kind = "debit" if order.is_debit else "credit"
    if (found.kind, found.amount, found.reason) != (kind, order.amount, order.reason):
        message = f"idempotency key {order.idempotency_key!r} names another transfer; choose a new one"
        raise LedgerRequestError(message, code="idempotency_conflict")
    return int(found.balance_after)


def _read(model: str, table: PriceTable) -> Prices:
    if not model or word(model) != model:
        raise LedgerRequestError("a model's name has 1 to 256 characters of text", code="invalid_model")
    try:
        return read_prices(table)
    except ValueError as error:
        raise LedgerRequestError(f"price of {model}: {error}", code="invalid_price") from error
