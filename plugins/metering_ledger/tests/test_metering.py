"""The way of a request through the ledger, as the server goes it: held, opened, counted, ended."""

import gc
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from memra_metering_ledger.bills import void_receipt
from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.errors import LedgerUnavailableError, ReceiptEndedError
from memra_metering_ledger.money import nanos
from memra_metering_ledger.receipts import LedgerPermit

from memra.errors import StartupError
from memra.plugins import (
    BudgetUnavailable,
    InsufficientBalance,
    KeySpendCapReached,
    MeteringRefusal,
    Outcome,
    TenantBlocked,
    TenantNotEnrolled,
    UsageCounts,
)
from memra.types import ModelName

CREDIT = nanos("1")
WORST = 10_000 + 100 * 1_000 + 50 * 4_000
"""A request, 100 prompt tokens and 50 generated ones at the fixture's prices, in nanos."""
COST = 10_000 + 60 * 1_000 + 40 * 250 + 20 * 4_000
"""The same with 40 tokens reused and 20 generated."""
USAGE = UsageCounts(prompt_tokens=100, cached_prompt_tokens=40, completion_tokens=20)


def reserve(server, tenant="acme", *, principal=None, prompt_tokens=100, completion_bound=50):
    return server.reserve(
        tenant,
        principal=principal,
        model=ModelName("tiny"),
        prompt_tokens=prompt_tokens,
        completion_bound=completion_bound,
    )


def begin(server, meta, request_id="r1", **changed: Any):
    return server.open(meta(request_id, **changed), reserve(server, principal=changed.get("principal")))


@pytest.fixture
def server(books):
    books.credit("acme", "1")
    return books.server()


def test_the_worst_case_is_held_before_anything_is_computed(books, server):
    permit = reserve(server)
    assert books.account("acme") == (CREDIT - WORST, WORST, 0)
    permit.refund()


def test_a_refund_gives_back_what_was_held(books, server):
    reserve(server).refund()
    assert books.account("acme") == (CREDIT, 0, 0)
    assert books.holds() == []


def test_a_hold_is_refunded_once(server):
    permit = reserve(server)
    permit.refund()
    with pytest.raises(ReceiptEndedError):
        permit.refund()


def test_a_hold_that_a_receipt_has_is_not_refunded(books, server, meta):
    permit = reserve(server)
    receipt = server.open(meta("r1"), permit)
    with pytest.raises(ReceiptEndedError):
        permit.refund()
    receipt.complete(USAGE, elapsed_s=0.5)
    assert books.account("acme") == (CREDIT - COST, 0, COST)


def test_a_complete_answer_costs_exactly_what_it_used(books, server, meta):
    begin(server, meta, max_tokens=50, reserved_context_tokens=150).complete(USAGE, elapsed_s=1.25)
    assert books.account("acme") == (CREDIT - COST, 0, COST)
    receipt = books.receipt("r1")
    assert (receipt.outcome, receipt.status, receipt.cost, receipt.charged) == ("completed", 200, "0.00016", COST)
    assert (receipt.prompt_tokens, receipt.cached_prompt_tokens, receipt.completion_tokens) == (100, 40, 20)
    assert (receipt.elapsed_ms, receipt.max_tokens, receipt.reserved_context_tokens) == (1250, 50, 150)


def test_a_part_that_the_deadline_left_is_paid_for(books, server, meta):
    begin(server, meta).complete_deadline_partial(USAGE, elapsed_s=1)
    assert books.account("acme") == (CREDIT - COST, 0, COST)
    assert books.receipt("r1").outcome == "deadline_partial"


def test_a_client_that_leaves_pays_for_what_was_generated(books, server, meta):
    receipt = begin(server, meta)
    receipt.record_prompt_usage(100, 40)
    for _ in range(4):
        receipt.record_completion_tokens(5)
    receipt.abandon()
    assert books.account("acme") == (CREDIT - COST, 0, COST)
    assert books.receipt("r1").outcome == "abandoned"


def test_a_client_that_leaves_before_the_worker_took_its_prompt_pays_nothing(books, server, meta):
    begin(server, meta).abandon()
    assert books.account("acme") == (CREDIT, 0, 0)


def test_nobody_pays_who_is_cut_off_when_the_drain_is_over(books, server, meta):
    receipt = begin(server, meta)
    receipt.record_prompt_usage(100, 40)
    receipt.record_completion_tokens(20)
    server.drain_kill()
    receipt.abandon()
    assert books.account("acme") == (CREDIT, 0, 0)
    assert books.receipt("r1").outcome == "drain_killed"


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if not outcome.is_billable])
def test_outcomes_that_are_not_paid_for_cost_nothing(books, server, meta, outcome):
    receipt = begin(server, meta)
    receipt.record_prompt_usage(100, 40)
    receipt.record_completion_tokens(20)
    receipt.settle_unbilled(outcome, 500, "engine_error")
    assert books.account("acme") == (CREDIT, 0, 0)
    found = books.receipt("r1")
    assert (found.outcome, found.status, found.code) == (outcome.value, 500, "engine_error")
    assert (found.completion_tokens, found.cost, found.charged) == (20, "0", 0)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_billable])
def test_an_outcome_that_is_paid_for_is_not_settled_without_a_bill(server, meta, outcome):
    receipt = begin(server, meta)
    with pytest.raises(ValueError, match="paid for"):
        receipt.settle_unbilled(outcome, 200, None)
    receipt.abandon()


def test_a_refused_request_leaves_a_receipt_and_pays_nothing(books, server, meta):
    server.open(meta("r1", tenant="stranger", model=ModelName("no such model")), None).reject(400, "model_not_found")
    found = books.receipt("r1")
    assert (found.outcome, found.status, found.code, found.charged) == ("rejected", 400, "model_not_found", 0)
    assert books.desk.find_account("stranger") is None


def test_a_refused_request_may_bring_words_that_no_database_takes(books, server, meta):
    server.open(meta("r1", model=ModelName("\0\ud800" + "x" * 10_000)), None).reject(400, "model_not_found")
    assert books.receipt("r1").model == "\ufffd?" + "x" * 254


def test_a_receipt_has_one_end(books, server, meta):
    receipt = begin(server, meta)
    receipt.complete(USAGE, elapsed_s=1)
    for end in (lambda: receipt.complete(USAGE, elapsed_s=1), receipt.abandon, lambda: receipt.reject(400, None)):
        with pytest.raises(ReceiptEndedError):
            end()
    assert books.account("acme") == (CREDIT - COST, 0, COST)


def test_no_more_is_charged_than_was_held(books, server, meta):
    receipt = server.open(meta("r1"), reserve(server, prompt_tokens=1, completion_bound=1))
    receipt.complete(UsageCounts(1_000, 0, 1_000), elapsed_s=1)
    assert books.account("acme") == (CREDIT - 15_000, 0, 15_000)


def test_a_price_that_changes_while_a_request_runs_does_not_change_its_bill(books, server, meta):
    receipt = begin(server, meta)
    books.desk.set_prices({"tiny": PriceTable(prompt="1", completion="1")})
    receipt.complete(USAGE, elapsed_s=1)
    assert books.receipt("r1").charged == COST


def test_who_is_not_enrolled_is_told_so(books, server):
    assert server.is_limited("acme")
    assert not server.is_limited("stranger")
    with pytest.raises(TenantNotEnrolled):
        reserve(server, "stranger")


def test_who_is_blocked_gets_nothing_and_ends_what_it_began(books, server, meta):
    receipt = begin(server, meta)
    books.desk.set_admission("acme", "blocked")
    with pytest.raises(TenantBlocked):
        server.is_limited("acme")
    with pytest.raises(TenantBlocked):
        reserve(server)
    receipt.complete(USAGE, elapsed_s=1)
    assert books.account("acme") == (CREDIT - COST, 0, COST)


def test_what_is_held_cannot_be_held_again(books, server):
    books.credit("poor", "0.0005")
    permit = reserve(server, "poor")
    with pytest.raises(InsufficientBalance):
        reserve(server, "poor")
    permit.refund()
    reserve(server, "poor").refund()


def test_an_overdraft_lets_a_balance_go_below_zero_and_no_further(books, server):
    books.desk.enrol("trusted", overdraft=2 * WORST)
    permits = [reserve(server, "trusted"), reserve(server, "trusted")]
    with pytest.raises(InsufficientBalance):
        reserve(server, "trusted")
    assert books.account("trusted") == (-2 * WORST, 2 * WORST, 0)
    for permit in permits:
        permit.refund()


def test_a_key_spends_no_more_than_its_cap_and_others_go_on(books, server, meta):
    books.desk.set_cap("acme", "mk-acme-1", WORST + COST)
    begin(server, meta, principal="mk-acme-1").complete(USAGE, elapsed_s=1)
    permit = reserve(server, principal="mk-acme-1")
    with pytest.raises(KeySpendCapReached):
        reserve(server, principal="mk-acme-1")
    permit.refund()
    reserve(server, principal="mk-acme-2").refund()
    books.desk.set_cap("acme", "mk-acme-1", None)
    reserve(server, principal="mk-acme-1").refund()


def test_a_model_without_a_price_is_not_served_on_credit(books, server):
    with pytest.raises(BudgetUnavailable, match="memra ledger price"):
        server.reserve("acme", principal=None, model=ModelName("new"), prompt_tokens=1, completion_bound=1)


def test_a_server_does_not_start_with_a_model_that_has_no_price(books):
    with pytest.raises(StartupError, match="no price for new, other"):
        books.server().start([ModelName("tiny"), ModelName("other"), ModelName("new")])


def test_a_ledger_that_only_writes_down_bills_without_asking(books, meta):
    server = books.server(enforce=False)
    assert not server.enforces_limits
    server.open(meta("r1", tenant="later", principal="k"), None).complete(USAGE, elapsed_s=1)
    assert books.account("later") == (-COST, 0, COST)


def test_a_ledger_that_only_writes_down_keeps_what_has_no_price(books, meta):
    server = books.server(enforce=False)
    server.open(meta("r1", model=ModelName("new")), None).complete(USAGE, elapsed_s=1)
    found = books.receipt("r1")
    assert (found.outcome, found.prompt_tokens, found.cost, found.charged) == ("completed", 100, None, 0)


def test_threads_never_hold_more_than_there_is(books, server):
    books.credit("poor", "0.00155")  # five worst cases of 0.00031

    def attempt(_number: int) -> LedgerPermit | None:
        try:
            return reserve(server, "poor")
        except MeteringRefusal:
            return None

    with ThreadPoolExecutor(8) as threads:
        permits = [permit for permit in threads.map(attempt, range(40)) if permit]
    assert len(permits) == 5
    assert books.account("poor") == (0, 5 * WORST, 0)
    for permit in permits:
        permit.refund()


def test_nothing_is_ever_captured(server, meta):
    assert server.captures("acme") is False
    receipt = begin(server, meta)
    assert receipt.wants_capture is False
    receipt.abandon()


def test_permits_and_receipts_that_nobody_takes_are_given_back_by_the_next_round(books, server, meta):
    reserve(server)
    begin(server, meta)
    gc.collect()
    server._housekeeper.look_after()
    assert books.account("acme") == (CREDIT, 0, 0)
    assert books.receipt("r1").outcome == "crashed"


def test_a_bill_is_taken_back_when_the_client_was_told_that_it_failed(books, server, meta):
    begin(server, meta, principal="k").complete(USAGE, elapsed_s=1)
    with books.database.write() as connection:
        void_receipt(connection, books.receipt("r1").receipt_id, now_ms=1)
    assert books.account("acme") == (CREDIT, 0, 0)
    assert books.receipt("r1").outcome == "crashed"


@pytest.fixture
def locked(impatient_books):
    """Give a server, and what keeps everybody else from writing to its ledger."""
    impatient_books.credit("acme", "1")
    blocker = sqlite3.connect(impatient_books.url.removeprefix("sqlite:///"), isolation_level=None)
    yield impatient_books, impatient_books.server(), blocker
    blocker.close()


def test_a_ledger_that_does_not_answer_refuses(locked, meta):
    _, server, blocker = locked
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(BudgetUnavailable):
        reserve(server)
    with pytest.raises(LedgerUnavailableError):
        server.open(meta("r1"), None)
    blocker.execute("ROLLBACK")


def test_an_answer_that_could_not_be_settled_fails_and_is_not_billed_later(locked, meta):
    books, server, blocker = locked
    receipt = begin(server, meta)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailableError):
        receipt.complete(USAGE, elapsed_s=1)
    blocker.execute("ROLLBACK")
    server._housekeeper.look_after()
    assert books.account("acme") == (CREDIT, 0, 0)
    assert books.receipt("r1").outcome == "crashed"


def test_a_client_that_left_is_billed_as_soon_as_the_ledger_answers(locked, meta):
    books, server, blocker = locked
    receipt = begin(server, meta)
    permit = reserve(server)
    receipt.record_prompt_usage(100, 40)
    receipt.record_completion_tokens(20)
    blocker.execute("BEGIN IMMEDIATE")
    receipt.abandon()
    permit.refund()
    assert books.account("acme")[1] == 2 * WORST
    blocker.execute("ROLLBACK")
    server._housekeeper.look_after()
    assert books.account("acme") == (CREDIT - COST, 0, COST)


def test_health_tells_rounds_that_failed_until_one_succeeds(locked):
    _, server, blocker = locked
    blocker.execute("BEGIN IMMEDIATE")
    server._housekeeper.try_to_look_after()
    server._housekeeper.try_to_look_after()
    health = server.limits_health()
    assert (health.source_reload_failed, health.source_reload_consecutive, health.source_available) == (2, 2, False)
    blocker.execute("ROLLBACK")
    server._housekeeper.try_to_look_after()
    health = server.limits_health()
    assert (health.source_reload_failed, health.source_reload_consecutive, health.source_available) == (2, 0, True)
