"""What whoever keeps accounts is told of a request, for every way in which one can end: one end each, the right one."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from memra.actors.account import Account
from memra.actors.account_items import Item
from memra.actors.metered_reply import MeteredReply
from memra.actors.outcomes import outcome_of
from memra.actors.request_meta import meta_of_refused
from memra.actors.shared_answers import SharedAnswers
from memra.errors import (
    BudgetUnavailableError,
    BusyError,
    ContextLengthError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    DeniedError,
    DrainingError,
    InsufficientBalanceError,
    InvalidRequestError,
    KeySpendCapError,
    LedgerUnavailableError,
    OverloadedError,
    PluginFaultError,
    QueueFullError,
    QueueWaitError,
    RequestCancelledError,
    RequestError,
    TenantNotEnrolledError,
    UnknownModelError,
    WorkerFaultError,
)
from memra.gate.response_cache import ResponseCache
from memra.gate.slots import lane_limits
from memra.messages.generation import ReplyDelta, ReplyFinished, TextPrompt, Usage
from memra.messages.identity import Identity
from memra.messages.lifecycle import BeginDrain, EndDrain, RefuseNewWork
from memra.messages.models import ModelTerms
from memra.messages.refusals import RefusedRequest
from memra.messages.sampling import SamplingParams
from memra.messages.texts import TextsRequest
from memra.messages.work import RequestFailed
from memra.plugins import (
    BudgetUnavailable,
    Deny,
    InsufficientBalance,
    KeySpendCapReached,
    Limit,
    MeteringRefusal,
    Outcome,
    TenantBlocked,
    TenantNotEnrolled,
    UsageCounts,
)
from memra.types import Lane, ModelName, ModelTask, RequestId, StopCause
from tests.actors.books import RING, Books, Observers, accounting_of

REFUSED = RefusedRequest(RequestId("r1"), Identity(), Lane.INTERACTIVE, "/v1/messages", ModelName("fake"))


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture(autouse=True)
def _books_wake_who_waits(kit: Any) -> Iterator[None]:
    RING.append(kit.ring)
    yield
    RING.clear()


def texts(name: str = "e1", *words: str) -> TextsRequest:
    prompts = tuple(TextPrompt(word) for word in words or ("ab", "c"))
    return TextsRequest(RequestId(name), ModelName("fake"), ModelTask.EMBED, prompts, "input", route="/v1/embeddings")


async def refused(house: Any, wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await (house.pool_texts(wanted) if isinstance(wanted, TextsRequest) else read(house, wanted))
    return caught.value


async def read(house: Any, wanted: Any) -> list[Any]:
    async with house.open_reply(wanted) as reply:
        return [part async for part in reply]


async def exhaust(reply: Any) -> None:
    async for part in reply:
        assert not isinstance(part, ReplyFinished)


# -- billed


async def test_an_answer_is_held_for_at_its_longest_and_billed_as_its_client_is_told(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        identity = Identity("default", principal="mk-1")
        wanted = kit.request(identity=identity, is_stream=True, route="/v1/chat/completions", max_new_tokens=7)
        *_, finished = await read(running.house, wanted)
        assert finished.usage.completion_tokens == 7
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 7))]
        (receipt,) = books.receipts
        assert (receipt.permit.prompt_tokens, receipt.permit.completion_bound) == (5, 7)
        meta = receipt.meta
        assert (meta.request_id, meta.tenant, meta.principal, meta.model) == ("r1", "default", "mk-1", "fake")
        assert (meta.route, meta.lane, meta.is_stream) == ("/v1/chat/completions", Lane.INTERACTIVE, True)
        assert (meta.max_tokens, meta.num_choices, meta.reserved_context_tokens) == (7, 1, 12)
        assert (receipt.prompt, receipt.num_generated) == ((5, 2), 7)
        assert books.asked == ["is_limited", "reserve", "open", "complete"]
        await running.is_empty()


async def test_the_hold_of_an_answer_of_no_asked_length_covers_the_context(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        await read(running.house, kit.request(max_new_tokens=None, stop_strings=("c",)))
        (receipt,) = books.receipts
        assert (receipt.meta.max_tokens, receipt.meta.reserved_context_tokens) == (None, 500)
        assert receipt.permit.completion_bound == 495
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 3))]


async def test_several_answers_are_one_account_and_count_each_prompt_once(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        wanted = kit.request(num_choices=3, further_prompts=(TextPrompt("four"),))
        *_, finished = await read(running.house, wanted)
        assert finished.usage.prompt_tokens == 9
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(9, 4, 30))]
        (receipt,) = books.receipts
        assert (receipt.permit.prompt_tokens, receipt.permit.completion_bound) == (9, 30)
        assert (receipt.meta.num_choices, receipt.prompt, receipt.num_generated) == (6, (9, 4), 30)
        await running.is_empty()


async def test_nothing_is_computed_before_all_of_it_is_held(kit: Any, books: Books):
    books.gates["reserve"] = gate = threading.Event()
    async with kit.open_house(accounting=accounting_of(books)) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, running.house, kit.request(num_choices=2, further_prompts=(TextPrompt("b"),)))
            await kit.eventually(lambda: "reserve" in books.asked)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert running.engine.submitted == []
            gate.set()
        assert len(running.engine.submitted) == 4


async def test_the_last_part_waits_for_the_books(kit: Any, books: Books):
    books.gates["complete"] = gate = threading.Event()
    async with kit.open_house(accounting=accounting_of(books)) as running:
        parts: list[Any] = []

        async def client() -> None:
            async with running.house.open_reply(kit.request()) as reply:
                async for part in reply:
                    parts.append(part)  # noqa: PERF401  (they are looked at one by one)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client)
            await kit.eventually(lambda: "complete" in books.asked)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert "".join(part.text for part in parts if isinstance(part, ReplyDelta)) == "abcde"
            assert not any(isinstance(part, ReplyFinished) for part in parts)
            gate.set()
        assert isinstance(parts[-1], ReplyFinished)
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 5))]


async def test_a_client_that_leaves_while_the_books_are_written_is_waited_for_and_pays_once(kit: Any, books: Books):
    books.gates["complete"] = gate = threading.Event()
    async with kit.open_house(accounting=accounting_of(books)) as running:
        scope = trio.CancelScope()

        async def client() -> None:
            with scope:
                await read(running.house, kit.request())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client)
            await kit.eventually(lambda: "complete" in books.asked)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert running.replies.num_open == 1
            gate.set()
        await running.is_empty()
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 5))]


@pytest.mark.parametrize("num_choices", [1, 3])
async def test_a_client_that_leaves_pays_for_what_was_generated_although_it_did_not_read_it(
    kit: Any, books: Books, num_choices: int
):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with running.house.open_reply(kit.request(num_choices=num_choices, max_new_tokens=80)) as reply:
            running.engine.allow(1)
            assert await anext(aiter(reply))
            running.engine.allow(8)
            await kit.eventually(lambda: running.engine.num_entered > 9)
            await trio.testing.wait_all_tasks_blocked(0.01)
        running.engine.release()
        await running.is_empty()
        ((outcome, prompt, num_generated),) = books.ends
        assert (outcome, prompt) == (Outcome.ABANDONED, (5, 2))
        assert num_generated == sum(ended.usage.completion_tokens for ended in running.ended) >= 4 * num_choices


async def test_a_client_that_leaves_before_its_turn_pays_for_nothing(kit: Any, books: Books):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, running.house, kit.request())
            await kit.eventually(lambda: running.engine.submitted)
            nursery.cancel_scope.cancel()
        running.engine.release()
        await running.is_empty()
        assert books.ends == [(Outcome.ABANDONED, None, 0)]


async def test_a_request_that_its_sender_takes_back_is_billed_as_one_that_was_left(kit: Any, books: Books):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with running.house.open_reply(kit.request(max_new_tokens=80)) as reply:
            running.engine.allow(2)
            text = ""
            while text != "ab":
                part = await anext(reply)
                text += part.text if isinstance(part, ReplyDelta) else ""
            await running.house.cancel("r1", Identity())
            with pytest.raises(RequestCancelledError):
                await anext(reply)
            assert books.ends == [(Outcome.ABANDONED, (5, 2), 2)]
            running.engine.release()
        await running.is_empty()
        assert len(books.ends) == 1


@pytest.mark.parametrize("num_choices", [1, 2])
async def test_what_the_deadline_left_of_an_answer_is_billed(
    kit: Any, books: Books, mock_clock: MockClock, num_choices: int
):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        wanted = kit.request(timeout_ms=1500, max_new_tokens=80, num_choices=num_choices)
        async with running.house.open_reply(wanted) as reply:
            running.engine.allow(1)
            await kit.eventually(lambda: len(running.engine.rows) == num_choices)
            running.engine.allow(4)
            await kit.eventually(lambda: running.engine.num_entered > 5)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(1.6)
            *_, finished = [part async for part in reply]
            running.engine.release()
        usage = finished.usage
        counts = UsageCounts(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        assert books.ends == [(Outcome.DEADLINE_PARTIAL, counts)]
        await running.is_empty()


async def test_an_answer_of_several_that_the_deadline_cut_makes_a_part_of_all_whichever_ended_last(books: Books):
    usage = Usage(5, 7, 0, elapsed_s=0.1)

    async def parts() -> Any:
        yield ReplyDelta("ab", stop=StopCause.DEADLINE)
        yield ReplyFinished(StopCause.MAX_TOKENS, usage, choice=1)

    account = Account(accounting_of(books), meta_of_refused(REFUSED))
    await account.hold([Item(5, 20, 25)])
    assert len([part async for part in MeteredReply(parts(), account, usage=lambda: usage)]) == 2
    assert books.ends == [(Outcome.DEADLINE_PARTIAL, UsageCounts(5, 0, 7))]


async def test_an_answer_that_is_kept_is_held_for_and_billed_as_its_client_is_told(kit: Any, books: Books):
    answers = SharedAnswers(ResponseCache(1 << 20, ttl_s=60.0), weights_of=lambda prompt: prompt.model)
    async with kit.open_house(accounting=accounting_of(books), answers=answers) as running:
        for name in "ab":
            wanted = kit.request(name, sampling=SamplingParams(temperature=0.0), may_reuse_answer=True)
            *_, finished = await read(running.house, wanted)
            assert finished.usage.completion_tokens == 5
        assert len(running.engine.submitted) == 1
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 5))] * 2


# -- texts


async def test_every_text_is_an_account_of_its_own(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        pooled = await running.house.pool_texts(texts("e1", "abc", "de"))
        assert pooled.num_tokens == 5
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(3, 0, 0)), (Outcome.COMPLETED, UsageCounts(2, 0, 0))]
        assert [receipt.meta.request_id for receipt in books.receipts] == ["e1.0", "e1.1"]
        assert [receipt.meta.route for receipt in books.receipts] == ["/v1/embeddings"] * 2
        assert [(permit.prompt_tokens, permit.completion_bound) for permit in books.permits] == [(3, 0), (2, 0)]


async def test_texts_that_are_not_covered_are_refused_with_all_that_were(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        reserve = books.reserve

        def reserve_two(*tenant: Any, **worst: Any) -> Any:
            if len(books.permits) == 2:
                raise InsufficientBalance
            return reserve(*tenant, **worst)

        books.reserve = reserve_two  # type: ignore[method-assign]
        assert isinstance(await refused(running.house, texts("e1", "a", "b", "c")), InsufficientBalanceError)
        assert books.ends == [(Outcome.REJECTED, 402, "insufficient_balance")] * 2
        assert running.engine.texts == {}
        await running.is_empty()


async def test_a_client_that_leaves_its_texts_pays_once_the_worker_took_them(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        running.engine.is_manual = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.house.pool_texts, texts())
            await kit.eventually(lambda: running.engine.texts)
            nursery.cancel_scope.cancel()
        running.engine.release()
        await running.is_empty()
        assert books.ends == [(Outcome.ABANDONED, None, 0)] * 2


async def test_texts_that_fail_cost_nothing(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        running.engine.failures = [RequestFailed(RequestId("e1"), "broken")]
        assert isinstance(await refused(running.house, texts()), WorkerFaultError)
        assert books.ends == [(Outcome.CRASHED, 500, "worker_fault")] * 2


# -- refused


@pytest.mark.parametrize(
    ("answers", "error", "status", "code"),
    [
        ({"is_limited": False}, TenantNotEnrolledError, 402, "tenant_not_enrolled"),
        ({"is_limited": TenantNotEnrolled()}, TenantNotEnrolledError, 402, "tenant_not_enrolled"),
        ({"is_limited": TenantBlocked()}, InsufficientBalanceError, 402, "insufficient_balance"),
        ({"is_limited": BudgetUnavailable()}, BudgetUnavailableError, 503, "tenant_budget_unavailable"),
        ({"reserve": InsufficientBalance("3 cents short")}, InsufficientBalanceError, 402, "insufficient_balance"),
        ({"reserve": KeySpendCapReached()}, KeySpendCapError, 402, "key_spend_cap_reached"),
        ({"reserve": MeteringRefusal()}, BudgetUnavailableError, 503, "tenant_budget_unavailable"),
    ],
)
async def test_a_refusal_by_the_accounting_has_its_code_and_is_on_the_books(  # noqa: PLR0913, PLR0917
    kit: Any, books: Books, answers: dict[str, Any], error: type[RequestError], status: int, code: str
):
    books.answers = answers
    async with kit.open_house(accounting=accounting_of(books)) as running:
        for wanted in (kit.request(), kit.request("r2", num_choices=2), texts()):
            told = await refused(running.house, wanted)
            assert isinstance(told, error)
            assert "3 cents" not in told.message
        assert running.engine.submitted == []
        assert books.ends == [(Outcome.REJECTED, status, code)] * 3
        assert all(receipt.permit is None for receipt in books.receipts)
        await running.is_empty()


async def test_nobody_is_asked_for_a_limit_where_none_is_enforced(kit: Any):
    books = Books(enforces_limits=False)
    async with kit.open_house(accounting=accounting_of(books)) as running:
        await read(running.house, kit.request())
        assert books.asked == ["open", "complete"]
        assert books.ends == [(Outcome.COMPLETED, UsageCounts(5, 2, 5))]


async def test_refusals_of_the_house_are_rejected_with_their_status(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books), limits=lane_limits(max_judge=0)) as running:
        assert isinstance(await refused(running.house, kit.request(model=ModelName("no"))), UnknownModelError)
        assert isinstance(await refused(running.house, kit.request(lane=Lane.JUDGE)), BusyError)
        too_long = kit.request(prompt=TextPrompt("x" * 2000))
        assert isinstance(await refused(running.house, too_long), ContextLengthError)
        running.admission.tell(RefuseNewWork(trio.current_time()))
        assert isinstance(await refused(running.house, kit.request()), DrainingError)
        rows = [(Outcome.REJECTED, 400, "model_not_found"), (Outcome.REJECTED, 429, "rate_limit_exceeded")]
        rows += [(Outcome.REJECTED, 400, "context_length_exceeded"), (Outcome.REJECTED, 503, "draining")]
        assert books.ends == rows


async def test_what_the_front_door_refused_is_rejected_as_well(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        refusal = RefusedRequest(RequestId("r1"), Identity("acme", "k"), Lane.JUDGE, "/v1/messages")
        await running.house.note_refusal(refusal, InvalidRequestError("No."))
        assert books.ends == [(Outcome.REJECTED, 400, None)]
        meta = books.receipts[0].meta
        assert (meta.tenant, meta.principal, meta.model, meta.route) == ("acme", "k", "", "/v1/messages")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (QueueFullError, Outcome.SHED_QUEUE),
        (DeadlineUnreachableError, Outcome.SHED_DEADLINE),
        (QueueWaitError, Outcome.SHED_QUEUE_WAIT),
        (BusyError, Outcome.REJECTED),
    ],
)
async def test_a_request_that_finds_no_place_is_shed_and_its_hold_is_the_receipts(
    kit: Any, books: Books, monkeypatch: pytest.MonkeyPatch, error: type[BusyError], outcome: Outcome
):
    def full(*_: Any, **__: Any) -> None:
        raise error("Full.")

    monkeypatch.setattr("memra.actors.work_desk.WorkDesk.reserve", full)
    async with kit.open_house(accounting=accounting_of(books)) as running:
        assert type(await refused(running.house, kit.request())) is error
        (end,) = books.ends
        assert end[:2] == (outcome, 429)
        assert books.receipts[0].permit is not None
        await running.is_empty()


async def test_a_deadline_before_the_first_token_costs_nothing(kit: Any, books: Books, mock_clock: MockClock):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with running.house.open_reply(kit.request(timeout_ms=1500)) as reply:
            await kit.eventually(running.engine.entered_step.is_set)
            mock_clock.jump(1.6)
            with pytest.raises(DeadlineExceededError):
                await anext(reply)
            running.engine.release()
        assert books.ends == [(Outcome.DEADLINE_EXCEEDED, 408, "deadline_exceeded")]
        await running.is_empty()


async def test_a_worker_that_fails_makes_a_crash_that_is_not_billed(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        running.engine.failures = [RequestFailed(RequestId("r1"), "broken")]
        assert isinstance(await refused(running.house, kit.request()), WorkerFaultError)
        running.engine.failures = [RequestFailed(RequestId("r2"), "no memory", overloaded=True)]
        assert isinstance(await refused(running.house, kit.request("r2")), OverloadedError)
        assert books.ends == [(Outcome.CRASHED, 500, "worker_fault"), (Outcome.CRASHED, 503, "overloaded")]


async def test_a_reader_that_fails_makes_a_crash_that_is_not_billed(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        with pytest.raises(KeyError):
            async with running.house.open_reply(kit.request()):
                raise KeyError
        assert books.ends == [(Outcome.CRASHED, 500, "engine_error")]
        await running.is_empty()


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_drain_that_cuts_an_answer_bills_nobody(kit: Any, books: Books, *, leaves: bool):
    async with kit.open_house(
        accounting=accounting_of(books), make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with trio.open_nursery() as nursery:
            async with running.house.open_reply(kit.request(max_new_tokens=80)) as reply:
                running.engine.allow(2)
                await anext(reply)
                running.lifecycle.tell(BeginDrain("a test"))
                running.lifecycle.tell(EndDrain())
                await kit.eventually(lambda: books.is_drain_over)
                if not leaves:
                    with pytest.raises(DrainingError):
                        await exhaust(reply)
                running.engine.release()
            nursery.cancel_scope.cancel()
        ((outcome, *_),) = books.ends
        assert outcome is Outcome.DRAIN_KILLED


@pytest.mark.parametrize("kind", [RequestError, *RequestError.__subclasses__(), ValueError])
def test_no_error_but_the_senders_own_cancelling_is_ever_billed(kind: type[Exception]):
    for is_let_in in (False, True):
        outcome = outcome_of(kind("x"), is_let_in=is_let_in)
        assert outcome.is_billable == (is_let_in and issubclass(kind, RequestCancelledError))


# -- the accounting fails


@pytest.mark.parametrize("method", ["is_limited", "reserve", "open"])
async def test_an_accounting_that_fails_before_the_answer_is_503_and_is_left_alone(
    kit: Any, books: Books, caplog: pytest.LogCaptureFixture, method: str
):
    books.answers[method] = OSError("disk full")
    async with kit.open_house(accounting=accounting_of(books)) as running:
        told = await refused(running.house, kit.request())
        assert isinstance(told, BudgetUnavailableError)
        assert "disk" not in told.message
        assert books.asked.count("open") <= 1
        assert f"plugin books: memra_metering: {method} failed" in caplog.text
        assert books.ends == []
        assert running.engine.submitted == []
        await running.is_empty()


@pytest.mark.parametrize("num_choices", [1, 2])
async def test_an_answer_that_cannot_be_written_down_is_an_error_and_has_one_end(
    kit: Any, books: Books, num_choices: int
):
    books.answers["complete"] = OSError("disk full")
    async with kit.open_house(accounting=accounting_of(books)) as running:
        async with running.house.open_reply(kit.request(num_choices=num_choices)) as reply:
            with pytest.raises(LedgerUnavailableError):
                await exhaust(reply)
        assert len(books.ends) == 1
        await running.is_empty()


async def test_texts_that_cannot_be_written_down_are_an_error(kit: Any, books: Books):
    books.answers["complete"] = OSError("disk full")
    async with kit.open_house(accounting=accounting_of(books)) as running:
        assert isinstance(await refused(running.house, texts()), LedgerUnavailableError)
        assert books.ends[1] == (Outcome.CRASHED, 500, "request_ledger_unavailable")
        assert len(books.ends) == 2


@pytest.mark.parametrize("method", ["abandon", "reject", "settle_unbilled"])
async def test_an_end_that_fails_changes_nothing_for_the_client(
    kit: Any, books: Books, caplog: pytest.LogCaptureFixture, method: str
):
    books.answers[method] = OSError("disk full")
    async with kit.open_house(accounting=accounting_of(books)) as running:
        if method == "abandon":
            async with running.house.open_reply(kit.request(max_new_tokens=400)) as reply:
                await anext(reply)
        elif method == "reject":
            assert isinstance(await refused(running.house, kit.request(model=ModelName("no"))), UnknownModelError)
        else:
            running.engine.failures = [RequestFailed(RequestId("r1"), "broken")]
            assert isinstance(await refused(running.house, kit.request()), WorkerFaultError)
        assert f"{method} failed" in caplog.text
        assert len(books.ends) == 1
        await running.is_empty()


@pytest.mark.parametrize("method", ["is_limited", "reserve", "open", "complete"])
async def test_an_accounting_that_hangs_holds_up_its_own_request_alone_and_not_for_long(
    kit: Any, books: Books, method: str
):
    books.gates[method] = gate = threading.Event()
    async with kit.open_house(accounting=accounting_of(books, timeout_s=0.05)) as running:
        told = await refused(running.house, kit.request())
        assert isinstance(told, LedgerUnavailableError if method == "complete" else BudgetUnavailableError)
        del books.gates[method]
        gate.set()
        *_, finished = await read(running.house, kit.request("r2"))
        assert isinstance(finished, ReplyFinished)
        assert [receipt.ends for receipt in books.receipts if receipt.meta.request_id == "r2"] == [
            [(Outcome.COMPLETED, UsageCounts(5, 2, 5))]
        ]
        await running.is_empty()


async def test_a_client_that_leaves_while_its_hold_is_placed_has_it_given_back(kit: Any, books: Books):
    books.gates["reserve"] = gate = threading.Event()
    async with kit.open_house(accounting=accounting_of(books)) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, running.house, kit.request())
            await kit.eventually(lambda: "reserve" in books.asked)
            nursery.cancel_scope.cancel()
            gate.set()
        assert [permit.fate for permit in books.permits] == ["refunded"]
        assert books.receipts == []
        await running.is_empty()


# -- hooks


async def test_a_plugin_is_asked_about_what_the_request_says_of_itself(kit: Any):
    observers = Observers()
    async with kit.open_house(accounting=accounting_of(None, observers)) as running:
        identity = Identity("acme", principal="mk-1")
        wanted = kit.request(num_choices=2, identity=identity, is_stream=True, route="/v1/completions")
        await read(running.house, wanted)
        await running.house.pool_texts(texts())
        (question, about_texts) = observers.asked
        assert (question.request_id, question.tenant, question.principal) == ("r1", "acme", "mk-1")
        assert (question.route, question.is_stream, question.max_tokens) == ("/v1/completions", True, 5)
        assert (question.model, question.lane, question.num_choices) == ("fake", Lane.INTERACTIVE, 2)
        assert (about_texts.request_id, about_texts.max_tokens) == ("e1", None)
        assert observers.told == observers.asked


async def test_a_plugin_that_denies_has_its_own_words_and_takes_no_slot(kit: Any, books: Books):
    observers = Observers(Deny("Not on Sundays.", status=451, code="sunday", retry_after_s=9.0))
    async with kit.open_house(accounting=accounting_of(books, observers)) as running:
        for wanted in (kit.request(), texts()):
            told = await refused(running.house, wanted)
            assert isinstance(told, DeniedError)
            assert (told.message, told.status, told.code, told.retry_after_s) == (
                "Not on Sundays.",
                451,
                "sunday",
                9.0,
            )
        assert observers.told == []
        assert running.ended == []
        assert books.ends == [(Outcome.REJECTED, 451, "sunday")] * 2


async def test_a_plugin_that_fails_denies(kit: Any, books: Books):
    observers = Observers(PluginFaultError("It failed."))
    async with kit.open_house(accounting=accounting_of(books, observers)) as running:
        assert isinstance(await refused(running.house, kit.request()), PluginFaultError)
        assert books.ends == [(Outcome.REJECTED, 503, "plugin_fault")]


@pytest.mark.parametrize(("asked", "num_tokens"), [(None, 4), (9, 4), (2, 2)])
async def test_a_plugins_limit_shortens_every_answer(kit: Any, books: Books, asked: int | None, num_tokens: int):
    async with kit.open_house(accounting=accounting_of(books, Observers(Limit(4)))) as running:
        *_, finished = await read(running.house, kit.request(num_choices=2, max_new_tokens=asked))
        assert finished.usage.completion_tokens == 2 * num_tokens
        (receipt,) = books.receipts
        assert receipt.permit.completion_bound == 2 * num_tokens
        assert receipt.meta.max_tokens == asked


async def test_a_request_that_is_refused_a_place_was_not_started(kit: Any, monkeypatch: pytest.MonkeyPatch):
    observers = Observers()

    def full(*_: Any, **__: Any) -> None:
        raise QueueFullError("Full.")

    async with kit.open_house(accounting=accounting_of(None, observers)) as running:
        monkeypatch.setattr("memra.actors.work_desk.WorkDesk.reserve", full)
        await refused(running.house, kit.request())
        assert (len(observers.asked), observers.told, running.ended) == (1, [], [])


# -- captures and health


async def test_body_and_answer_are_captured_where_both_sides_want_it(kit: Any):
    books = Books(wants_capture=True)
    async with kit.open_house(accounting=accounting_of(books)) as running:
        assert await running.house.captures(Identity())
        await read(running.house, kit.request(body=b'{"prompt": "what?"}'))
        await read(running.house, kit.request("r2"))
        assert [(receipt.body, receipt.text) for receipt in books.receipts] == [
            (b'{"prompt": "what?"}', "abcde"),
            (None, ""),
        ]
        books.answers["captures"] = OSError("disk full")
        assert not await running.house.captures(Identity())


async def test_the_source_of_limits_shows_among_the_counters(kit: Any, books: Books):
    async with kit.open_house(accounting=accounting_of(books)) as running:
        metrics = await running.house.report_metrics()
        assert metrics["limits_source_reload_failed"] == 2
        assert metrics["limits_source_reload_consecutive"] == 1
        assert metrics["limits_source_available"] is True
        books.answers["limits_health"] = OSError("disk full")
        assert (await running.house.report_metrics())["limits_source_available"] is False
    async with kit.open_house() as running:
        assert not [name for name in await running.house.report_metrics() if name.startswith("limits")]


async def test_a_server_without_an_accounting_wants_no_bodies(kit: Any):
    async with kit.open_house(models={"fake": ModelTerms()}) as running:
        assert not await running.house.captures(Identity())
        wanted = replace(kit.request(), body=b"{}")
        assert isinstance((await read(running.house, wanted))[-1], ReplyFinished)
