"""A request's account in the database: reserve, open, and one of its ends. Each is part of a transaction.

Refuses to know threads and retries; `metering` and `receipts` call it for the server, `owners` for servers that died.
"""

import contextlib
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from memra.plugins import (
    InsufficientBalance,
    KeySpendCapReached,
    Outcome,
    RequestMeta,
    TenantBlocked,
    TenantNotEnrolled,
)
from memra_metering_ledger import books
from memra_metering_ledger.errors import ReceiptEndedError
from memra_metering_ledger.money import Tokens, decimal_of_attos, nanos_up
from memra_metering_ledger.price_list import ListedPrice, current_price, prices_by_id
from memra_metering_ledger.tables import holds, receipts

_MAX_WORD = 256
"""Characters that are kept of a word; a refused request may bring any as its model's name."""


@dataclass(frozen=True, slots=True)
class HoldOrder:
    """What is to be held.

    Attributes:
        amount: nanos.
    """

    hold_id: str
    owner_id: str
    tenant: str
    principal: str | None
    price: ListedPrice
    amount: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended.

    Attributes:
        tokens: what was counted; None when the worker never took the prompt.
        status, code: of a refusal, as told to the client.
    """

    outcome: Outcome
    tokens: Tokens | None
    status: int | None = None
    code: str | None = None
    elapsed_ms: int | None = None

    def values(self) -> dict[str, Any]:
        """Return it as columns of a receipt."""
        return {
            "outcome": self.outcome.value,
            "status": self.status,
            "code": None if self.code is None else word(self.code),
            "elapsed_ms": self.elapsed_ms,
            "prompt_tokens": self.tokens.prompt if self.tokens else None,
            "cached_prompt_tokens": self.tokens.cached_prompt if self.tokens else None,
            "completion_tokens": self.tokens.completion if self.tokens else None,
        }


def new_id() -> str:
    """Return an id that no other server gives."""
    return uuid.uuid4().hex


def word(text: str) -> str:
    """Make of any text one that every database takes: no zero, no half of a surrogate pair, and not too long."""
    return text[:_MAX_WORD].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def place_hold(connection: Connection, order: HoldOrder, *, now_ms: int) -> None:
    """Put the worst case aside.

    Raises:
        MeteringRefusal: there is not that much, or the tenant or its key may not.
    """
    account = books.find_account(connection, order.tenant, for_update=True)
    if account is None:
        raise TenantNotEnrolled(f"tenant {order.tenant!r} is not enrolled")
    if account.admission != books.OPEN:
        raise TenantBlocked(f"admission of tenant {order.tenant!r} is {account.admission}")
    spending = books.find_spending(connection, account, order.principal) if order.principal else None
    if spending and not spending.can_spend(order.amount):
        raise KeySpendCapReached(f"key {order.principal!r} would spend more than its cap")
    if account.spendable < order.amount:
        raise InsufficientBalance(f"the balance of tenant {order.tenant!r} does not cover the worst case")
    books.hold(connection, account, spending, order.amount)
    connection.execute(
        insert(holds).values(
            hold_id=order.hold_id,
            owner_id=order.owner_id,
            tenant=order.tenant,
            principal=order.principal,
            price_id=order.price.price_id,
            amount=order.amount,
            since_ms=now_ms,
        )
    )


def release_hold(connection: Connection, hold_id: str) -> bool:
    """Give back a hold that no receipt has; false when it is gone already."""
    tenant = connection.execute(select(holds.c.tenant).where(holds.c.hold_id == hold_id)).scalar_one_or_none()
    if tenant is None:
        return False
    account = books.enrol(connection, tenant, now_ms=0)
    found = _take_hold(connection, holds.c.hold_id == hold_id)
    if found is None:
        return False
    spending = books.find_spending(connection, account, found.principal) if found.principal else None
    books.settle(connection, account, spending, held=found.amount, charge=0)
    return True


@dataclass(frozen=True, slots=True)
class Opening:
    """Who opens a receipt, and with which hold."""

    receipt_id: str
    owner_id: str
    hold_id: str | None


def open_receipt(connection: Connection, meta: RequestMeta, opening: Opening, *, now_ms: int) -> None:
    """Write down that a request is here; its hold is the receipt's from now on.

    Raises:
        ReceiptEndedError: the hold is gone: this server was taken for dead.
    """
    hold_id = opening.hold_id
    price_id = _price_of(connection, meta.model, hold_id)
    words = {name: word(getattr(meta, name)) for name in ("request_id", "tenant", "model", "route")}
    numbers = {
        name: getattr(meta, name) for name in ("is_stream", "max_tokens", "num_choices", "reserved_context_tokens")
    }
    connection.execute(
        insert(receipts).values(
            receipt_id=opening.receipt_id,
            owner_id=opening.owner_id,
            principal=None if meta.principal is None else word(meta.principal),
            lane=meta.lane.value,
            price_id=price_id,
            opened_ms=now_ms,
            **words,
            **numbers,
        )
    )
    if hold_id is None:
        return
    free = (holds.c.hold_id == hold_id) & (holds.c.tenant == words["tenant"]) & holds.c.receipt_id.is_(None)
    bound = update(holds).where(free)
    if connection.execute(bound.values(receipt_id=opening.receipt_id)).rowcount != 1:
        raise ReceiptEndedError(f"request {meta.request_id}: its hold is gone; the server was taken for dead")


def close_receipt(connection: Connection, receipt_id: str, ending: Ending, *, now_ms: int) -> None:
    """Settle a request; nothing happens when it ended in just this way already.

    The charge is the exact cost, rounded up to a nano, and never more than was held.

    Raises:
        ReceiptEndedError: it ended in another way.
    """
    tenant = connection.execute(select(receipts.c.tenant).where(receipts.c.receipt_id == receipt_id)).scalar_one()
    account = books.find_account(connection, tenant, for_update=True)
    receipt = connection.execute(select(receipts).where(receipts.c.receipt_id == receipt_id).with_for_update()).one()
    if receipt.outcome is not None:
        if receipt.outcome == ending.outcome:
            return
        raise ReceiptEndedError(f"request {receipt.request_id} ended already: {receipt.outcome}")
    cost = _cost(connection, receipt, ending)
    held = _take_hold(connection, holds.c.receipt_id == receipt_id)
    charge = nanos_up(cost or 0)
    if held is not None:
        charge = min(charge, held.amount)
    if held is not None or charge:
        account = account or books.enrol(connection, tenant, now_ms=now_ms)
        principal = receipt.principal if held is None else held.principal
        spending = books.find_spending(connection, account, principal) if principal else None
        books.settle(connection, account, spending, held=0 if held is None else held.amount, charge=charge)
    bill = {"cost": None if cost is None else decimal_of_attos(cost), "charged": charge, "closed_ms": now_ms}
    connection.execute(
        update(receipts).where(receipts.c.receipt_id == receipt_id).values(owner_id=None, **ending.values(), **bill)
    )


def end_later(connection: Connection, receipt_id: str, ending: Ending, *, now_ms: int) -> None:
    """Close a receipt whose end could not be written in time; one that was closed meanwhile keeps its end."""
    with contextlib.suppress(ReceiptEndedError):
        close_receipt(connection, receipt_id, ending, now_ms=now_ms)


def crash_receipt(connection: Connection, receipt_id: str, *, now_ms: int) -> None:
    """Close the receipt of a server that is no more; one that ended keeps its end."""
    end_later(connection, receipt_id, Ending(Outcome.CRASHED, tokens=None), now_ms=now_ms)


def void_receipt(connection: Connection, receipt_id: str, *, now_ms: int) -> None:
    """Take back the bill of a request whose client was told that it failed, or close it without one.

    A database can carry out what it could not confirm any more; this makes the books say what the client knows.
    """
    found = connection.execute(select(receipts).where(receipts.c.receipt_id == receipt_id)).one_or_none()
    if found is None:
        return
    if found.outcome is None:
        close_receipt(connection, receipt_id, Ending(Outcome.CRASHED, tokens=None), now_ms=now_ms)
        return
    account = books.find_account(connection, found.tenant, for_update=True)
    receipt = connection.execute(select(receipts).where(receipts.c.receipt_id == receipt_id).with_for_update()).one()
    if account is not None and receipt.charged:
        spending = books.find_spending(connection, account, receipt.principal) if receipt.principal else None
        books.settle(connection, account, spending, held=0, charge=-receipt.charged)
    end = update(receipts).where(receipts.c.receipt_id == receipt_id)
    connection.execute(end.values(outcome=Outcome.CRASHED.value, cost="0", charged=0))


def _price_of(connection: Connection, model: str, hold_id: str | None) -> str | None:
    if hold_id is not None:
        found = connection.execute(select(holds.c.price_id).where(holds.c.hold_id == hold_id)).scalar_one_or_none()
        return None if found is None else str(found)
    price = current_price(connection, word(model))
    return price.price_id if price else None


def _take_hold(connection: Connection, which: object) -> Row[tuple[object, ...]] | None:
    found = connection.execute(select(holds).where(which).with_for_update()).one_or_none()  # type: ignore[arg-type]
    if found is not None:
        connection.execute(delete(holds).where(holds.c.hold_id == found.hold_id))
    return found


def _cost(connection: Connection, receipt: Row[tuple[object, ...]], ending: Ending) -> int | None:
    """Return the exact cost in attos; None where the model had no price."""
    if not ending.outcome.is_billable or ending.tokens is None:
        return 0
    if receipt.price_id is None:
        return None
    return prices_by_id(connection, [receipt.price_id])[receipt.price_id].cost(ending.tokens)
