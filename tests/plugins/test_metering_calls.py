"""An accounting is called with a time limit, its refusals pass, and whatever else goes wrong is a fault by name."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from memra.errors import PluginFaultError
from memra.plugins import InsufficientBalance, LimitsHealth, Outcome, RequestMeta, UsageCounts
from memra.plugins.calling import PluginCalls
from memra.plugins.metering_calls import MeteringCalls
from memra.plugins.plugin import Plugin
from memra.types import Lane, ModelName, RequestId

META = RequestMeta(RequestId("r1"), "acme", None, ModelName("m"), "/v1/completions", Lane.INTERACTIVE, is_stream=False)


class Notes:
    """Permit and receipt: plain functions and coroutine functions, all written down."""

    wants_capture = False
    arm_capture = capture_completion_delta = record_prompt_usage = record_completion_tokens = None

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def refund(self) -> None:
        self.log.append("refund")

    async def complete(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append(("complete", usage, elapsed_s))

    def complete_deadline_partial(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        self.log.append(("partial", usage, elapsed_s))

    def abandon(self) -> None:
        self.log.append("abandon")

    def reject(self, status: int, code: str | None) -> None:
        self.log.append(("reject", status, code))

    def settle_unbilled(self, outcome: Outcome, status: int, code: str | None) -> None:
        self.log.append((outcome, status, code))


class Accounts:
    enforces_limits = True

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.answers: dict[str, Any] = {}

    def _answer(self, what: str, usual: Any) -> Any:
        answer = self.answers.get(what, usual)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def is_limited(self, tenant: str) -> bool:
        return self._answer("is_limited", tenant == "acme")

    async def reserve(self, tenant: str, **worst: Any) -> Notes:
        self.log.append((tenant, worst))
        return self._answer("reserve", Notes(self.log))

    def open(self, meta: RequestMeta, permit: Any) -> Notes:
        assert meta.tenant == "acme"
        assert permit is None
        return self._answer("open", Notes(self.log))

    def captures(self, tenant: str) -> bool:
        return self._answer("captures", tenant != "acme")

    def limits_health(self) -> LimitsHealth | None:
        return self._answer("limits_health", LimitsHealth(1, 0, source_available=True))

    def drain_kill(self) -> None:
        self.log.append("drain_kill")


def made() -> tuple[Accounts, MeteringCalls]:
    accounts = Accounts()
    return accounts, MeteringCalls(Plugin("books", "books (books 1.0)", accounts), accounts, PluginCalls(timeout_s=5))


WORST = {"principal": None, "model": ModelName("m"), "prompt_tokens": 3, "completion_bound": 9}


async def test_every_call_reaches_the_accounting_with_what_it_needs():
    accounts, calls = made()
    usage = UsageCounts(3, 1, 2)
    assert await calls.is_limited("acme") is True
    assert await calls.is_limited("other") is False
    permit = await calls.reserve("acme", **WORST)
    assert permit is not None
    await calls.refund(permit)
    receipt = await calls.open(META, None)
    await calls.complete(receipt, usage, elapsed_s=0.5)
    await calls.complete_deadline_partial(receipt, usage, elapsed_s=0.5)
    await calls.abandon(receipt)
    await calls.reject(receipt, 429, "shed_queue")
    await calls.settle_unbilled(receipt, Outcome.CRASHED, 500, None)
    assert await calls.captures("acme") is False
    assert await calls.limits_health() == LimitsHealth(1, 0, source_available=True)
    assert accounts.log == [
        ("acme", WORST),
        "refund",
        ("complete", usage, 0.5),
        ("partial", usage, 0.5),
        "abandon",
        ("reject", 429, "shed_queue"),
        (Outcome.CRASHED, 500, None),
    ]


async def test_a_refusal_is_an_answer_and_not_logged(caplog: pytest.LogCaptureFixture):
    accounts, calls = made()
    accounts.answers = dict.fromkeys(("is_limited", "reserve"), InsufficientBalance("1,000 tokens short"))
    with pytest.raises(InsufficientBalance):
        await calls.is_limited("acme")
    with pytest.raises(InsufficientBalance):
        await calls.reserve("acme", **WORST)
    assert not caplog.records


@pytest.mark.parametrize("answer", [OSError("disk full"), "yes", 3])
async def test_memra_metering_that_fails_or_talks_nonsense_is_a_fault_by_name(
    answer: Any, caplog: pytest.LogCaptureFixture
):
    accounts, calls = made()
    accounts.answers = dict.fromkeys(("is_limited", "reserve", "open", "captures", "limits_health"), answer)
    asks = {
        "is_limited": lambda: calls.is_limited("acme"),
        "reserve": lambda: calls.reserve("acme", **WORST),
        "open": lambda: calls.open(META, None),
        "captures": lambda: calls.captures("acme"),
        "limits_health": calls.limits_health,
    }
    for what, ask in asks.items():
        caplog.clear()
        with pytest.raises(PluginFaultError):
            await ask()
        assert f"plugin books: memra_metering: {what} failed" in caplog.text


class BrokenReceipt:
    """Fails in whatever it is told."""

    def __getattr__(self, name: str) -> Any:
        raise OSError(f"no {name}")


def test_what_must_not_wait_is_told_to_the_receipt_and_its_faults_are_logged_alone(caplog: pytest.LogCaptureFixture):
    accounts, calls = made()
    told: list[Any] = []
    receipt: Any = SimpleNamespace(
        wants_capture=True,
        arm_capture=told.append,
        capture_completion_delta=told.append,
        record_prompt_usage=lambda *counts: told.append(counts),
        record_completion_tokens=told.append,
    )
    for each in (receipt, BrokenReceipt()):
        calls.arm_capture(each, b"{}")
        calls.capture_completion_delta(each, "text")
        calls.record_prompt_usage(each, 3, 1)
        calls.record_completion_tokens(each, 2)
    calls.drain_kill()
    assert told == [b"{}", "text", (3, 1), 2]
    assert accounts.log == ["drain_kill"]
    assert caplog.text.count("plugin books: memra_metering") == 4
    assert (calls.wants_capture(receipt), calls.wants_capture(BrokenReceipt())) == (True, False)


@pytest.mark.parametrize(("said", "limits"), [(True, True), (False, False), ("perhaps", True)])
def test_limits_are_enforced_where_the_accounting_cannot_say(said: Any, limits: bool):  # noqa: FBT001  (a parameter)
    accounts, calls = made()
    accounts.enforces_limits = said
    assert calls.enforces_limits is limits
