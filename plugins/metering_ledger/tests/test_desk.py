"""What an operator does: money once, admission as expected, prices exactly, and every act in the audit log."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.desk import Transfer
from memra_metering_ledger.errors import LedgerRequestError, LedgerUnavailableError
from memra_metering_ledger.money import MAX_NANOS
from sqlalchemy import text


def refused(code: str):
    return pytest.raises(LedgerRequestError, check=lambda error: error.code == code)


def test_a_credit_enrols_a_tenant_and_is_there(books):
    assert books.desk.find_account("acme") is None
    assert books.desk.transfer(Transfer("acme", 5_000, "k1")) == 5_000
    assert books.account("acme") == (5_000, 0, 0)


def test_a_transfer_that_is_sent_again_answers_as_it_did_and_moves_nothing(books):
    books.desk.transfer(Transfer("acme", 5_000, "k1"))
    books.desk.transfer(Transfer("acme", 1_000, "k2", "spoilt", is_debit=True))
    assert books.desk.transfer(Transfer("acme", 5_000, "k1")) == 5_000
    assert books.desk.transfer(Transfer("acme", 1_000, "k2", "spoilt", is_debit=True)) == 4_000
    assert books.account("acme") == (4_000, 0, 0)


@pytest.mark.parametrize(
    "other",
    [
        Transfer("acme", 5_001, "k1"),
        Transfer("acme", 5_000, "k1", "reason"),
        Transfer("acme", 5_000, "k1", "reason", is_debit=True),
    ],
)
def test_an_idempotency_key_that_names_another_transfer_is_refused(books, other):
    books.desk.transfer(Transfer("acme", 5_000, "k1"))
    with refused("idempotency_conflict"):
        books.desk.transfer(other)
    assert books.account("acme") == (5_000, 0, 0)


def test_tenants_may_use_the_same_idempotency_key(books):
    books.desk.transfer(Transfer("acme", 5_000, "k1"))
    books.desk.transfer(Transfer("other", 7_000, "k1"))
    assert books.account("other") == (7_000, 0, 0)


def test_one_credit_sent_by_many_at_once_is_there_once(books):
    order = Transfer("acme", 5_000, "k1")
    _ = books.desk
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: books.desk.transfer(order), range(16))) == {5_000}
    assert books.account("acme") == (5_000, 0, 0)


def test_no_more_is_debited_than_there_is(books):
    books.desk.transfer(Transfer("acme", 5_000, "k1"))
    with refused("insufficient_balance"):
        books.desk.transfer(Transfer("acme", 5_001, "k2", "spoilt", is_debit=True))
    with refused("tenant_not_enrolled"):
        books.desk.transfer(Transfer("other", 1, "k2", "spoilt", is_debit=True))


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (Transfer("", 1, "k"), "invalid_tenant"),
        (Transfer("a b", 1, "k"), "invalid_tenant"),
        (Transfer("acme\n", 1, "k"), "invalid_tenant"),
        (Transfer("acme", 0, "k"), "invalid_amount"),
        (Transfer("acme", -5, "k"), "invalid_amount"),
        (Transfer("acme", MAX_NANOS + 1, "k"), "invalid_amount"),
        (Transfer("acme", 1, ""), "invalid_idempotency_key"),
        (Transfer("acme", 1, "a\nb"), "invalid_idempotency_key"),
        (Transfer("acme", 1, "k" * 257), "invalid_idempotency_key"),
        (Transfer("acme", 1, "k", " ", is_debit=True), "invalid_reason"),
        (Transfer("acme", 1, "k", "\0"), "invalid_reason"),
    ],
)
def test_a_transfer_that_makes_no_sense_is_refused(books, order, code):
    with refused(code):
        books.desk.transfer(order)
    assert books.desk.list_audit()[0]["action"] == "price"


def test_a_balance_never_leaves_what_a_column_holds(books):
    books.desk.transfer(Transfer("acme", MAX_NANOS, "k1"))
    with refused("amount_too_large"):
        books.desk.transfer(Transfer("acme", 1, "k2"))


def test_admission_changes_only_from_what_was_expected(books):
    books.desk.enrol("acme")
    books.desk.set_admission("acme", "blocked", expected="open")
    with refused("admission_mode_conflict"):
        books.desk.set_admission("acme", "blocked", expected="open")
    with refused("invalid_admission_mode"):
        books.desk.set_admission("acme", "ajar")
    with refused("tenant_not_enrolled"):
        books.desk.set_admission("other", "open")
    assert books.desk.count_admissions() == {"open": 0, "blocked": 1}


def test_an_equal_price_changes_nothing(books):
    assert books.desk.set_prices({"m": PriceTable(prompt="0.5", completion="1")}) == ["m"]
    assert books.desk.set_prices({"m": PriceTable(prompt="0.50", cached_prompt="0.5", completion="1.0")}) == []
    assert books.desk.set_prices({"m": PriceTable(prompt="0.25", completion="1")}) == ["m"]
    listed = {"model": "m", "prompt": "0.25", "cached_prompt": "0.25", "completion": "1", "request": "0"}
    assert listed in books.desk.list_prices()
    assert len(books.desk.list_prices()) == 2


@pytest.mark.parametrize("table", [PriceTable("-1", "1"), PriceTable("1", "1e3"), PriceTable("1", "1", "2")])
def test_a_price_that_is_none_is_refused_with_the_model_it_is_of(books, table):
    with pytest.raises(LedgerRequestError, match="price of m: "):
        books.desk.set_prices({"m": table})


def test_every_act_is_in_the_audit_log(books):
    books.desk.enrol("acme", overdraft=7)
    books.desk.transfer(Transfer("acme", 5, "k1", "welcome"))
    books.desk.set_cap("acme", "mk-1", 3)
    books.desk.set_admission("acme", "blocked")
    entries = books.desk.list_audit(4)
    assert [entry["action"] for entry in entries] == ["admission", "cap", "credit", "enrol"]
    assert {(entry["actor"], entry["tenant"]) for entry in entries} == {("test", "acme")}
    assert entries[2]["detail"] == {"idempotency_key": "k1", "amount": 5, "reason": "welcome", "balance": 5}


@pytest.mark.parametrize("change", ["UPDATE ledger_audit SET actor = 'nobody'", "DELETE FROM ledger_audit"])
def test_the_audit_log_can_only_be_added_to(books, change):
    books.desk.enrol("acme")
    with pytest.raises(LedgerUnavailableError, match="only be added to"), books.database.write() as connection:
        connection.execute(text(change))
    assert books.desk.list_audit(1)[0]["actor"] == "test"
