"""Any order of what servers, clients, operators and deaths can do keeps the books in agreement."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from memra_metering_ledger.bills import new_id
from memra_metering_ledger.desk import Transfer
from memra_metering_ledger.errors import LedgerRequestError, ReceiptEndedError
from memra_metering_ledger.owners import release_owner

from memra.plugins import MeteringRefusal, Outcome, UsageCounts
from memra.types import ModelName

tenants = st.sampled_from(["a", "b"])
keys = st.sampled_from([None, "k1", "k2"])
tokens = st.integers(0, 60)
money = st.integers(1, 600_000)


class Interleavings(RuleBasedStateMachine):
    """Two servers on one ledger; `credited` is what must be there, tenant by tenant."""

    make_books: Any
    make_meta: Any
    permits = Bundle("permits")
    receipts = Bundle("receipts")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.books = self.make_books(f"sqlite:///{Path(self.folder.name) / 'ledger.sqlite3'}")
        self.credited = {"a": 0, "b": 0}
        self.overdraft = {"a": 0, "b": 0}
        for tenant in self.credited:
            self.books.desk.enrol(tenant)
        self.servers = [self.books.server(), self.books.server()]

    @rule(tenant=tenants, amount=money, again=st.booleans())
    def credit(self, tenant, amount, again):
        order = Transfer(tenant, amount, new_id())
        balance = self.books.desk.transfer(order)
        self.credited[tenant] += amount
        if again:
            assert self.books.desk.transfer(order) == balance

    @rule(tenant=tenants, amount=money)
    def debit(self, tenant, amount):
        order = Transfer(tenant, amount, new_id(), "spoilt", is_debit=True)
        if self.books.account(tenant)[0] + self.overdraft[tenant] < amount:
            with pytest.raises(LedgerRequestError, check=lambda error: error.code == "insufficient_balance"):
                self.books.desk.transfer(order)
        else:
            self.books.desk.transfer(order)
            self.credited[tenant] -= amount

    @rule(tenant=tenants, amount=money)
    def allow_overdraft(self, tenant, amount):
        self.overdraft[tenant] += amount
        self.books.desk.enrol(tenant, overdraft=self.overdraft[tenant])

    @rule(tenant=tenants, cap=st.none() | money)
    def cap(self, tenant, cap):
        self.books.desk.set_cap(tenant, "k1", cap)

    @rule(tenant=tenants, mode=st.sampled_from(["open", "blocked"]))
    def admit(self, tenant, mode):
        self.books.desk.set_admission(tenant, mode)

    @rule(target=permits, which=st.integers(0, 1), tenant=tenants, key=keys, prompt=tokens, bound=tokens)
    def reserve(self, which, tenant, key, prompt, bound):
        server = self.servers[which]
        try:
            permit = server.reserve(
                tenant, principal=key, model=ModelName("tiny"), prompt_tokens=prompt, completion_bound=bound
            )
        except MeteringRefusal:
            permit = None
        return server, tenant, key, permit

    @rule(taken=consumes(permits))
    def refund(self, taken):
        if taken[3]:
            taken[3].refund()

    @rule(target=receipts, taken=consumes(permits), prompt=st.none() | tokens, generated=tokens)
    def open(self, taken, prompt, generated):
        server, tenant, key, permit = taken
        try:
            receipt = server.open(self.make_meta(new_id(), tenant=tenant, principal=key), permit)
        except ReceiptEndedError:  # a death took the hold
            return None
        if permit is None:
            receipt.reject(402, "insufficient_balance")
            return None
        if prompt is not None:
            receipt.record_prompt_usage(prompt, prompt // 2)
            receipt.record_completion_tokens(generated)
        return receipt

    @rule(receipt=consumes(receipts), prompt=tokens, generated=tokens)
    def complete(self, receipt, prompt, generated):
        self.end(receipt, lambda: receipt.complete(UsageCounts(prompt, prompt // 3, generated), elapsed_s=1))

    @rule(receipt=consumes(receipts))
    def abandon(self, receipt):
        self.end(receipt, receipt and receipt.abandon)

    @rule(receipt=consumes(receipts), outcome=st.sampled_from([each for each in Outcome if not each.is_billable]))
    def fail(self, receipt, outcome):
        self.end(receipt, lambda: receipt.settle_unbilled(outcome, 500, None))

    def end(self, receipt, how):
        if receipt is not None:
            with contextlib.suppress(ReceiptEndedError):  # a death closed it
                how()

    @rule(which=st.integers(0, 1))
    def die(self, which):
        release_owner(self.books.database, self.servers[which]._housekeeper.owner_id, now_ms=1)
        self.servers[which]._housekeeper.look_after()

    @rule(which=st.integers(0, 1))
    def look_after(self, which):
        self.servers[which]._housekeeper.look_after()

    @invariant()
    def nothing_comes_from_nowhere(self):
        if not hasattr(self, "books"):
            return
        self.books.check()
        for tenant, credited in self.credited.items():
            balance, held, settled = self.books.account(tenant)
            assert balance + held + settled == credited
            assert balance >= -self.overdraft[tenant]
            assert min(held, settled) >= 0

    def teardown(self):
        if hasattr(self, "books"):
            self.books.close()
            self.folder.cleanup()


@pytest.mark.slow
def test_any_interleaving_keeps_the_books_in_agreement(make_books, meta):
    class Machine(Interleavings):
        pass

    Machine.make_books, Machine.make_meta = staticmethod(make_books), staticmethod(meta)
    Machine.TestCase.settings = settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    Machine.TestCase("runTest").debug()
