"""An accounting that writes down what it is told, and how many times each receipt was ended."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memra.actors.accounting import Accounting
from memra.http.errors import status_and_code
from memra.plugins import AdmissionQuestion, LimitsHealth, Outcome, RequestMeta, UsageCounts, Verdict
from memra.plugins.calling import PluginCalls
from memra.plugins.metering_calls import MeteringCalls
from memra.plugins.plugin import Plugin

RING: list[Callable[[], object]] = []


@dataclass
class FakePermit:
    books: "Books"
    prompt_tokens: int
    completion_bound: int
    fate: str | None = None

    def refund(self) -> None:
        assert self.fate is None
        self.fate = "refunded"


@dataclass
class FakeReceipt:
    """One account; `ends` holds every end that it came to."""

    books: "Books"
    meta: RequestMeta
    permit: FakePermit | None
    ends: list[tuple[Any, ...]] = field(default_factory=list)
    prompt: tuple[int, int] | None = None
    num_generated: int = 0
    body: bytes | None = None
    text: str = ""

    @property
    def wants_capture(self) -> bool:
        return self.books.wants_capture

    def arm_capture(self, prompt_json: bytes) -> None:
        self.body = prompt_json

    def capture_completion_delta(self, text: str) -> None:
        self.text += text

    def record_prompt_usage(self, prompt_tokens: int, cached_prompt_tokens: int) -> None:
        assert not self.ends
        self.prompt = (prompt_tokens, cached_prompt_tokens)

    def record_completion_tokens(self, num_tokens: int) -> None:
        assert not self.ends
        assert num_tokens > 0
        self.num_generated += num_tokens

    def complete(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        assert elapsed_s >= 0
        self._end("complete", Outcome.COMPLETED, usage)

    def complete_deadline_partial(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        assert elapsed_s >= 0
        self._end("complete", Outcome.DEADLINE_PARTIAL, usage)

    def abandon(self) -> None:
        outcome = Outcome.DRAIN_KILLED if self.books.is_drain_over else Outcome.ABANDONED
        self._end("abandon", outcome, self.prompt, self.num_generated)

    def reject(self, status: int, code: str | None) -> None:
        self._end("reject", Outcome.REJECTED, status, code)

    def settle_unbilled(self, outcome: Outcome, status: int, code: str | None) -> None:
        assert not outcome.is_billable
        self._end("settle_unbilled", outcome, status, code)

    def _end(self, what: str, *end: Any) -> None:
        self.ends.append(end)  # also where it fails: whoever asks twice is found out
        self.books.meet(what)


@dataclass
class Books:
    """What `Metering` promises, in memory.

    Attributes:
        answers: by method: an exception to raise, or what to answer.
        gates: by method: an event that the call waits for, in its thread.
    """

    enforces_limits: bool = True
    wants_capture: bool = False
    answers: dict[str, Any] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    permits: list[FakePermit] = field(default_factory=list)
    receipts: list[FakeReceipt] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    is_drain_over: bool = False

    def meet(self, what: str, usual: Any = None) -> Any:
        self.asked.append(what)
        for ring in RING:
            ring()
        gate = self.gates.get(what)
        if gate is not None:
            assert gate.wait(10)
        answer = self.answers.get(what, usual)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def is_limited(self, tenant: str) -> bool:
        assert tenant
        return self.meet("is_limited", True)

    def reserve(self, tenant: str, *, prompt_tokens: int, completion_bound: int, **who: Any) -> Any:
        assert (tenant, who["model"]) == ("default", "fake")
        assert who["principal"] in {None, "mk-1"}
        permit = FakePermit(self, prompt_tokens, completion_bound)
        self.meet("reserve")
        self.permits.append(permit)
        return permit

    def open(self, meta: RequestMeta, permit: FakePermit | None) -> FakeReceipt:
        if permit is not None:
            assert permit.fate is None
            permit.fate = "opened"
        self.meet("open")
        self.receipts.append(FakeReceipt(self, meta, permit))
        return self.receipts[-1]

    def captures(self, tenant: str) -> bool:
        assert tenant
        return self.meet("captures", self.wants_capture)

    def limits_health(self) -> LimitsHealth | None:
        return self.meet("limits_health", LimitsHealth(2, 1, source_available=True))

    def drain_kill(self) -> None:
        self.is_drain_over = True

    # -- for tests

    @property
    def ends(self) -> list[tuple[Any, ...]]:
        """The one end of every receipt; fails where one has none, or two."""
        assert [receipt.meta.request_id for receipt in self.receipts if len(receipt.ends) != 1] == []
        assert all(permit.fate is not None for permit in self.permits), "a hold that nobody knows of"
        return [receipt.ends[0] for receipt in self.receipts]


@dataclass
class Observers:
    """Plugins that are asked, and told."""

    verdict: Verdict | Exception | None = None
    asked: list[AdmissionQuestion] = field(default_factory=list)
    told: list[AdmissionQuestion] = field(default_factory=list)

    async def admit(self, question: AdmissionQuestion) -> Verdict | None:
        self.asked.append(question)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def accounting_of(books: Books | None, observers: Observers | None = None, *, timeout_s: float = 5.0) -> Accounting:
    """Return what the composition root makes of a plugin."""
    observers = observers or Observers()
    plugin = Plugin("books", "books (books 1.0)", None)
    calls = None if books is None else MeteringCalls(plugin, books, PluginCalls(timeout_s=timeout_s))
    return Accounting(calls, describe=status_and_code, admit=observers.admit, tell_started=observers.told.append)
