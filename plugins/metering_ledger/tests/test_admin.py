"""The routes for tenants' money, on an application as the admin listener makes it."""

from unittest.mock import ANY

import pytest
from memra_metering_ledger.admin import ledger_blueprint
from quart_trio import QuartTrio


@pytest.fixture
def client(books):
    app = QuartTrio(__name__)
    app.register_blueprint(ledger_blueprint(books.database, books.server(), "USD"))
    return app.test_client()


async def answer(response) -> tuple[int, dict]:
    return response.status_code, await response.get_json()


async def refusal(response) -> tuple[int, str]:
    status, body = await answer(response)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "admin_error"
    return status, body["error"]["code"]


CREDIT = {"amount_micro": 5_000_000, "idempotency_key": "k1"}


async def test_a_credit_answers_with_the_new_balance(client):
    expected = {"tenant": "acme", "currency": "USD", **CREDIT, "balance_micro": 5_000_000}
    assert await answer(await client.post("/admin/tenants/acme/credit", json=CREDIT)) == (200, expected)
    assert await answer(await client.post("/admin/tenants/acme/credit", json=CREDIT)) == (200, expected)


async def test_a_debit_takes_away_and_needs_a_reason(client):
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    order = {"amount_micro": 1, "idempotency_key": "k2"}
    assert await refusal(await client.post("/admin/tenants/acme/debit", json=order)) == (400, "invalid_reason")
    status, body = await answer(await client.post("/admin/tenants/acme/debit", json=order | {"reason": "spoilt"}))
    assert (status, body["balance_micro"]) == (200, 4_999_999)


async def test_a_key_that_names_another_transfer_is_a_conflict(client):
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    other = CREDIT | {"amount_micro": 1}
    assert await refusal(await client.post("/admin/tenants/acme/credit", json=other)) == (409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("tenant", "body", "code"),
    [
        ("acme", [], "invalid_body"),
        ("acme", {"amount_micro": 1}, "invalid_body"),
        ("acme", CREDIT | {"colour": "red"}, "invalid_body"),
        ("acme", CREDIT | {"amount_micro": True}, "invalid_body"),
        ("acme", CREDIT | {"amount_micro": 1.0}, "invalid_body"),
        ("acme", CREDIT | {"amount_micro": "1"}, "invalid_body"),
        ("acme", CREDIT | {"amount_micro": 0}, "invalid_amount"),
        ("acme", CREDIT | {"amount_micro": 2**70}, "invalid_amount"),
        ("a.b", CREDIT, "invalid_tenant"),
    ],
)
async def test_what_is_no_credit_is_refused(client, tenant, body, code):
    assert await refusal(await client.post(f"/admin/tenants/{tenant}/credit", json=body)) == (400, code)


async def test_a_debit_of_what_is_not_there_is_a_conflict(client):
    order = {"amount_micro": 1, "idempotency_key": "k", "reason": "spoilt"}
    assert await refusal(await client.post("/admin/tenants/acme/debit", json=order)) == (404, "tenant_not_enrolled")
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    order["amount_micro"] = 6_000_000
    assert await refusal(await client.post("/admin/tenants/acme/debit", json=order)) == (409, "insufficient_balance")


async def test_a_balance_tells_whether_a_tenant_is_limited(client):
    health = {
        "budget_source_available": True,
        "budget_source_reload_failed": 0,
        "budget_source_reload_consecutive": 0,
    }
    unknown = {"balance_micro": None, "held_micro": None, "admission_mode": None, "limited": False}
    expected = {"tenant": "acme", "currency": "USD", **health}
    assert await answer(await client.get("/admin/tenants/acme/balance")) == (200, expected | unknown)
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    known = {"balance_micro": 5_000_000, "held_micro": 0, "admission_mode": "open", "limited": True}
    assert await answer(await client.get("/admin/tenants/acme/balance")) == (200, expected | known)


async def test_admission_changes_if_it_is_as_expected(client):
    route = "/admin/tenants/acme/admission"
    assert await refusal(await client.get(route)) == (404, "tenant_not_enrolled")
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    assert await answer(await client.get(route)) == (200, {"tenant": "acme", "admission_mode": "open"})
    change = {"expected_mode": "open", "mode": "blocked"}
    assert await answer(await client.post(route, json=change)) == (200, {"tenant": "acme", "admission_mode": "blocked"})
    assert await refusal(await client.post(route, json=change)) == (409, "admission_mode_conflict")
    odd = {"expected_mode": "blocked", "mode": "ajar"}
    assert await refusal(await client.post(route, json=odd)) == (400, "invalid_admission_mode")


async def test_usage_comes_as_json_and_as_csv(client):
    status, body = await answer(await client.get("/admin/tenants/acme/usage?from_ms=0&until_ms=9"))
    assert (status, body["tenant"], body["from_ms"], body["until_ms"], body["cost"]) == (200, "acme", 0, 9, "0")
    response = await client.get("/admin/tenants/acme/usage?format=csv")
    assert response.content_type == "text/csv; charset=utf-8"
    assert (await response.get_data(as_text=True)).startswith("tenant,model,principal,requests,")


@pytest.mark.parametrize(("query", "code"), [("from_ms=-1", "invalid_period"), ("format=xml", "invalid_format")])
async def test_a_usage_that_cannot_be_told_is_refused(client, query, code):
    assert await refusal(await client.get(f"/admin/tenants/acme/usage?{query}")) == (400, code)


async def test_readiness_counts_who_is_let_in(client):
    await client.post("/admin/tenants/acme/credit", json=CREDIT)
    expected = {
        "ready": True,
        "budget_source_available": True,
        "budget_source_reload_consecutive": 0,
        "admission_modes": {"open": 1, "blocked": 0},
    }
    assert await answer(await client.get("/admin/readiness")) == (200, expected)


async def test_a_database_that_does_not_answer_is_not_ready(impatient_books, monkeypatch):
    server = impatient_books.server()
    app = QuartTrio(__name__)
    app.register_blueprint(ledger_blueprint(impatient_books.database, server, "USD"))
    with impatient_books.database.write():  # every other writer is told that it is locked
        status = await refusal(await app.test_client().post("/admin/tenants/acme/credit", json=CREDIT))
    assert status == (503, "tenant_budget_unavailable")
    monkeypatch.setattr(impatient_books.database, "read", impatient_books.database.write)
    with impatient_books.database.write():
        status, body = await answer(await app.test_client().get("/admin/readiness"))
    monkeypatch.undo()
    assert (status, body["ready"], body["admission_modes"]) == (503, False, ANY)
