"""Routes of the admin listener for tenants' money. The listener asks for its token and writes its audit line first.

Amounts are whole micros of the ledger's currency, `balance_micro` rounded down. Every wait for the database happens in
a worker thread.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import trio
from quart import Blueprint, Response, request

from memra_metering_ledger.database import Database
from memra_metering_ledger.desk import Desk, Transfer, check_tenant, micros
from memra_metering_ledger.errors import LedgerRequestError, LedgerUnavailableError
from memra_metering_ledger.metering import LedgerMetering
from memra_metering_ledger.money import MAX_NANOS, NANOS_IN_MICRO
from memra_metering_ledger.usage import Period, tenant_usage

T = TypeVar("T")

_STATUS = {
    "idempotency_conflict": 409,
    "insufficient_balance": 409,
    "admission_mode_conflict": 409,
    "tenant_not_enrolled": 404,
}
"""Of refusals; all others are 400."""


@dataclass(frozen=True)
class LedgerRoutes:
    """Handlers of the routes."""

    database: Database
    metering: LedgerMetering
    currency: str

    @property
    def _desk(self) -> Desk:
        return Desk(self.database, actor="admin")

    async def usage(self, tenant: str) -> Response:
        """GET: what a tenant used; `from_ms`, `until_ms` and `format=csv` in the query."""
        check_tenant(tenant)
        period = Period(_query_number("from_ms"), _query_number("until_ms"))
        form = request.args.get("format", "json")
        if form not in {"json", "csv"}:
            raise LedgerRequestError("format must be json or csv", code="invalid_format")

        def read() -> Response:
            with self.database.read() as connection:
                found = tenant_usage(connection, tenant, period)
            return (
                Response(found.csv(), content_type="text/csv; charset=utf-8")
                if form == "csv"
                else _json(found.report())
            )

        return await _in_thread(read)

    async def credit(self, tenant: str) -> Response:
        """POST {amount_micro, idempotency_key, reason?}: add to a tenant's balance, once; enrols it if need be."""
        return await self._transfer(tenant, is_debit=False)

    async def debit(self, tenant: str) -> Response:
        """POST {amount_micro, idempotency_key, reason}: take from a tenant's balance, once."""
        return await self._transfer(tenant, is_debit=True)

    async def _transfer(self, tenant: str, *, is_debit: bool) -> Response:
        body = await _body({"amount_micro": int, "idempotency_key": str}, optional={"reason": str})
        amount_micro = body["amount_micro"]
        if not 0 < amount_micro <= MAX_NANOS // NANOS_IN_MICRO:
            raise LedgerRequestError(
                "amount_micro must be above 0, and less than a ledger holds", code="invalid_amount"
            )
        key = body["idempotency_key"]
        order = Transfer(tenant, amount_micro * NANOS_IN_MICRO, key, body.get("reason", ""), is_debit)
        balance = await _in_thread(lambda: self._desk.transfer(order))
        answer = {"tenant": tenant, "currency": self.currency, "amount_micro": amount_micro}
        return _json(answer | {"balance_micro": micros(balance), "idempotency_key": key})

    async def balance(self, tenant: str) -> Response:
        """GET: a tenant's balance, what is held of it, and whether it is let in."""
        check_tenant(tenant)
        account = await _in_thread(lambda: self._desk.find_account(tenant))
        health = self.metering.limits_health()
        return _json(
            {
                "limited": account is not None and self.metering.enforces_limits,
                "tenant": tenant,
                "currency": self.currency,
                "balance_micro": None if account is None else micros(account.balance),
                "held_micro": None if account is None else micros(account.held),
                "admission_mode": None if account is None else account.admission,
                "budget_source_available": health.source_available,
                "budget_source_reload_failed": health.source_reload_failed,
                "budget_source_reload_consecutive": health.source_reload_consecutive,
            }
        )

    async def admission(self, tenant: str) -> Response:
        """GET: whether a tenant is let in; POST {expected_mode, mode}: change that, if it is as expected."""
        if request.method == "POST":
            body = await _body({"expected_mode": str, "mode": str})
            mode, expected = body["mode"], body["expected_mode"]
            await _in_thread(lambda: self._desk.set_admission(tenant, mode, expected=expected))
            return _json({"tenant": tenant, "admission_mode": mode})
        account = await _in_thread(lambda: self._desk.find_account(tenant))
        if account is None:
            raise LedgerRequestError(f"tenant {tenant!r} is not enrolled; credit it first", code="tenant_not_enrolled")
        return _json({"tenant": tenant, "admission_mode": account.admission})

    async def readiness(self) -> Response:
        """GET: whether money can be asked for now; 503 when it cannot."""
        health = self.metering.limits_health()
        try:
            admissions: Mapping[str, int] | None = await _in_thread(self._desk.count_admissions)
        except LedgerUnavailableError:
            admissions = None
        is_ready = admissions is not None
        report = {
            "ready": is_ready,
            "budget_source_available": is_ready,
            "budget_source_reload_consecutive": health.source_reload_consecutive,
            "admission_modes": admissions,
        }
        return _json(report, status=200 if is_ready else 503)


def ledger_blueprint(database: Database, metering: LedgerMetering, currency: str) -> Blueprint:
    """Return the routes over a ledger."""
    routes = LedgerRoutes(database, metering, currency)
    blueprint = Blueprint("metering_ledger", __name__)
    tenant = "/admin/tenants/<tenant>"
    blueprint.get(f"{tenant}/usage")(routes.usage)
    blueprint.post(f"{tenant}/credit")(routes.credit)
    blueprint.post(f"{tenant}/debit")(routes.debit)
    blueprint.get(f"{tenant}/balance")(routes.balance)
    blueprint.route(f"{tenant}/admission", methods=["GET", "POST"])(routes.admission)
    blueprint.get("/admin/readiness")(routes.readiness)
    blueprint.errorhandler(LedgerRequestError)(_refused)
    blueprint.errorhandler(LedgerUnavailableError)(_unavailable)
    return blueprint


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


async def _body(required: Mapping[str, type], optional: Mapping[str, type] | None = None) -> dict[str, Any]:
    known = {**required, **(optional or {})}
    body = await request.get_json(force=True, silent=True)
    if not isinstance(body, dict):
        raise LedgerRequestError("the body must be a JSON object", code="invalid_body")
    for name in required:
        if name not in body:
            raise LedgerRequestError(f"{name} is missing", code="invalid_body")
    for name, value in body.items():
        if name not in known:
            raise LedgerRequestError(f"unknown field {name!r}", code="invalid_body")
        if type(value) is not known[name]:  # a bool is no amount
            raise LedgerRequestError(f"{name} must be of JSON type {_JSON_TYPES[known[name]]}", code="invalid_body")
    return body


_JSON_TYPES = {int: "integer", str: "string"}


def _query_number(name: str) -> int | None:
    text = request.args.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 17):  # noqa: PLR2004  (fits 64 bits)
        raise LedgerRequestError(f"{name} must be milliseconds since 1970", code="invalid_period")
    return int(text)


def _json(value: object, *, status: int = 200) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")


def _refused(error: LedgerRequestError) -> Response:
    return _error(error.message, error.code, _STATUS.get(error.code, 400))


def _unavailable(error: LedgerUnavailableError) -> Response:
    return _error(error.message, "tenant_budget_unavailable", 503)


def _error(message: str, code: str, status: int) -> Response:
    body = {"message": message, "type": "admin_error", "param": None, "code": code}
    return _json({"error": body}, status=status)
