"""The ledger as the server asks it: may this tenant have this request, and what became of it.

Methods are plain functions that wait for the database, so the server calls them in worker threads. Where the database
does not answer, requests are refused: nobody computes what nobody can account for.
"""

import logging
from collections.abc import Sequence
from functools import partial

from memra.errors import StartupError
from memra.plugins import BudgetUnavailable, LimitsHealth, Permit, RequestMeta, TenantBlocked
from memra.types import ModelName
from memra_metering_ledger import bills, books
from memra_metering_ledger.database import Database
from memra_metering_ledger.errors import LedgerUnavailableError
from memra_metering_ledger.housekeeping import Housekeeper, now_ms
from memra_metering_ledger.price_list import ListedPrice, current_price, current_prices
from memra_metering_ledger.receipts import LedgerPermit, LedgerReceipt

log = logging.getLogger(__name__)


class LedgerMetering:
    """A deployment's accounting in a database that several servers may share."""

    def __init__(self, database: Database, *, enforce: bool) -> None:
        """Stand on a prepared database."""
        self._database = database
        self._enforce = enforce
        self._housekeeper = Housekeeper(database, bills.new_id())
        self._is_drain_over = False

    def start(self, models: Sequence[ModelName]) -> None:
        """Release what dead servers held, and begin to beat.

        Raises:
            StartupError: a model has no price.
            LedgerUnavailableError: the database does not answer.
        """
        with self._database.read() as connection:
            priced = {price.model for price in current_prices(connection)}
        missing = sorted(set(models) - priced)
        if missing:
            raise StartupError(
                f"ledger: no price for {', '.join(missing)}; set it with `memra ledger price` or in "
                "[plugins.metering_ledger.prices]"
            )
        self._housekeeper.start()

    def stop(self) -> None:
        """Close what is open as crashed, and let the database go."""
        self._housekeeper.stop()
        self._database.close()

    @property
    def enforces_limits(self) -> bool:
        """Whether requests are refused where there is no money for them."""
        return self._enforce

    def is_limited(self, tenant: str) -> bool:
        """Whether a tenant is enrolled.

        Raises:
            TenantBlocked: its admission is closed.
            BudgetUnavailable: the database does not answer.
        """
        try:
            with self._database.read() as connection:
                account = books.find_account(connection, bills.word(tenant))
        except LedgerUnavailableError as error:
            raise _unavailable(error) from error
        if account is not None and account.admission != books.OPEN:
            raise TenantBlocked(f"admission of tenant {tenant!r} is {account.admission}")
        return account is not None

    def reserve(
        self, tenant: str, *, principal: str | None, model: ModelName, prompt_tokens: int, completion_bound: int
    ) -> LedgerPermit:
        """Hold the worst case.

        Raises:
            MeteringRefusal: there is not that much, the tenant or its key may not, the model has no price, or the
                database does not answer.
        """
        hold_id = bills.new_id()
        try:
            price = self._price(model)
            order = bills.HoldOrder(
                hold_id=hold_id,
                owner_id=self._housekeeper.owner_id,
                tenant=bills.word(tenant),
                principal=bills.word(principal) if principal else None,
                price=price,
                amount=price.prices.worst_case_nanos(max(prompt_tokens, 0), max(completion_bound, 0)),
            )
            with self._database.write() as connection:
                bills.place_hold(connection, order, now_ms=now_ms())
        except LedgerUnavailableError as error:
            self._housekeeper.defer(partial(bills.release_hold, hold_id=hold_id))
            raise _unavailable(error) from error
        return LedgerPermit(self._database, self._housekeeper, hold_id)

    def _price(self, model: ModelName) -> ListedPrice:
        with self._database.read() as connection:
            price = current_price(connection, model)
        if price is None:
            raise BudgetUnavailable(f"model {model!r} has no price; set it with `memra ledger price`")
        return price

    def open(self, meta: RequestMeta, permit: Permit | None) -> LedgerReceipt:
        """Open the receipt of a request.

        Raises:
            LedgerUnavailableError: it could not be written; what was held is given back.
        """
        hold_id = None
        if isinstance(permit, LedgerPermit):
            permit.once.claim("the hold")
            hold_id = permit.hold_id
        receipt_id = bills.new_id()
        opening = bills.Opening(receipt_id, self._housekeeper.owner_id, hold_id)
        try:
            with self._database.write() as connection:
                bills.open_receipt(connection, meta, opening, now_ms=now_ms())
        except LedgerUnavailableError:
            self._housekeeper.defer(partial(bills.void_receipt, receipt_id=receipt_id, now_ms=now_ms()))
            if hold_id:
                self._housekeeper.defer(partial(bills.release_hold, hold_id=hold_id))
            raise
        return LedgerReceipt(self._database, self._housekeeper, receipt_id, lambda: self._is_drain_over)

    def captures(self, tenant: str) -> bool:  # noqa: ARG002  (the same answer for all of them)
        """Never: this ledger keeps tokens and money, and no words."""
        return False

    def limits_health(self) -> LimitsHealth:
        """Return how the database does, as the last beat found it."""
        return self._housekeeper.health()

    def drain_kill(self) -> None:
        """Bill nobody who is abandoned from now on."""
        self._is_drain_over = True


def _unavailable(error: LedgerUnavailableError) -> BudgetUnavailable:
    """Log what is wrong with the database, and make a refusal of it that tells a client nothing about it."""
    log.warning("%s", error)
    return BudgetUnavailable("the ledger does not answer")
