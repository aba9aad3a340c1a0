"""What a tenant used, summed up exactly, as JSON and as CSV."""

import csv
import io

import pytest
from memra_metering_ledger.config import PriceTable
from memra_metering_ledger.money import nanos
from memra_metering_ledger.tables import receipts
from memra_metering_ledger.usage import Period, tenant_usage

from memra.plugins import Outcome, UsageCounts
from memra.types import ModelName


def usage_of(books, tenant="acme", period=None):
    with books.database.read() as connection:
        return tenant_usage(connection, tenant, period or Period())


def serve(server, meta, request_id, counts, **who: str | None):
    who = {"principal": "k1", "model": "tiny", "tenant": "acme"} | who
    tenant, principal, model = who["tenant"], who["principal"], who["model"]
    permit = server.reserve(
        tenant, principal=principal, model=ModelName(model), prompt_tokens=counts[0], completion_bound=counts[2]
    )
    receipt = server.open(meta(request_id, principal=principal, model=ModelName(model), tenant=tenant), permit)
    receipt.record_prompt_usage(*counts[:2])
    receipt.record_completion_tokens(counts[2])
    return receipt


@pytest.fixture
def used(books, meta):
    """Give a ledger after four requests of one tenant, and one of another."""
    for tenant in ("acme", "other"):
        books.credit(tenant, "10")
    books.desk.set_prices({"fine": PriceTable(prompt="0.000000000000000001", completion="0.000000000000000003")})
    server = books.server()
    serve(server, meta, "r1", (100, 40, 20)).complete(UsageCounts(100, 40, 20), elapsed_s=1)
    serve(server, meta, "r2", (10, 0, 5), principal="k2").abandon()
    serve(server, meta, "r3", (50, 0, 50)).settle_unbilled(Outcome.CRASHED, 500, "engine_error")
    serve(server, meta, "r4", (7, 0, 3), model="fine", principal=None).complete(UsageCounts(7, 0, 3), elapsed_s=1)
    server.open(meta("r5", model=ModelName("=cmd()"), principal="k1"), None).reject(400, "model_not_found")
    serve(server, meta, "r6", (1, 0, 1), tenant="other").complete(UsageCounts(1, 0, 1), elapsed_s=1)
    serve(server, meta, "r7", (1, 0, 1))  # still open: no part of any bill
    return books


def test_a_report_counts_every_end_and_bills_those_that_are_paid_for(used):
    report = usage_of(used).report()
    assert report["outcomes"] == {"abandoned": 1, "completed": 2, "crashed": 1, "rejected": 1}
    assert (report["requests"], report["billed_requests"]) == (5, 3)
    assert report["usage"] == {
        "prompt_tokens": 117,
        "cached_prompt_tokens": 40,
        "ordinary_prompt_tokens": 77,
        "completion_tokens": 28,
        "total_tokens": 145,
    }
    assert (report["tenant"], report["currency"]) == ("acme", "USD")


def test_a_cost_is_exact_to_the_last_of_eighteen_digits(used):
    report = usage_of(used).report()
    assert report["cost"] == "0.000200000000000016"  # 160 + 40 millionths, and 7 + 9 attos
    assert report["charged"] == "0.000200001"  # the attos were rounded up to a nano


def test_what_was_charged_is_what_left_the_balance(used):
    charged = nanos(usage_of(used).report()["charged"])
    assert used.account("acme")[2] == charged


def test_old_bills_keep_their_prices(used):
    before = usage_of(used).report()
    used.desk.set_prices({"tiny": PriceTable(prompt="1", completion="1")})
    assert usage_of(used).report() == before


def test_parts_are_by_model_and_key(used):
    parts = usage_of(used).report()["models"]
    assert [(part["model"], part["principal"]) for part in parts] == [
        ("=cmd()", "k1"),
        ("fine", None),
        ("tiny", "k1"),
        ("tiny", "k2"),
    ]
    assert parts[3]["cost"] == "0.00004"


def test_a_period_holds_its_beginning_and_not_its_end(used):
    with used.database.write() as connection:
        for number, request_id in enumerate(("r1", "r2", "r3", "r4", "r5")):
            connection.execute(receipts.update().where(receipts.c.request_id == request_id).values(closed_ms=number))
    assert usage_of(used, period=Period(1, 3)).report()["outcomes"] == {"abandoned": 1, "crashed": 1}
    assert usage_of(used, period=Period(4)).report()["requests"] == 1
    assert usage_of(used, period=Period(until_ms=0)).report()["requests"] == 0


def test_csv_says_the_same_and_runs_nothing_in_a_spreadsheet(used):
    usage = usage_of(used)
    lines = list(csv.DictReader(io.StringIO(usage.csv(), newline="")))
    assert [line["model"] for line in lines] == ["'=cmd()", "fine", "tiny", "tiny"]
    assert sum(int(line["total_tokens"]) for line in lines) == usage.report()["usage"]["total_tokens"]
    assert sum(nanos(line["charged"]) for line in lines) == nanos(usage.report()["charged"])
    assert {line["currency"] for line in lines} == {"USD"}


def test_who_used_nothing_gets_an_empty_report(books):
    _ = books.database
    report = usage_of(books, "nobody").report()
    assert (report["requests"], report["cost"], report["models"]) == (0, "0", [])
