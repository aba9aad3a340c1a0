"""The metering seam: what a deployment's accounting is asked and told. It speaks tokens, never money.

The stock server has no accounting: without a plugin that answers `memra_metering`, none of this is called. A plugin
gives one `Metering` for the life of the server. Its methods may be plain functions, which run in worker threads and so
at the same time, or coroutine functions, which run on trio (on one asyncio loop if the plugin says
`memra_async = "asyncio"`). Exceptions are `record_prompt_usage`, `record_completion_tokens`, `arm_capture`,
`capture_completion_delta`, `enforces_limits` and `drain_kill`: plain functions that must not block, called where the
request runs.

The way of one request: `is_limited` before it takes a slot and, when its prompts are rendered, `reserve` (both only if
limits are enforced), then `open` with the permit, then the receipt's `record_*` while it runs, then exactly one of its
ends. A call that was begun is waited for, also when the client leaves. Every wait has the limit of `[plugins]
timeout_s`; who takes longer is as good as not there (503 `tenant_budget_unavailable` before the answer, after which the
request is not spoken of again; 500 `request_ledger_unavailable` at its end, and the receipt has had that end).

- Several answers to one request, and to several prompts, are one account; each prompt counts once.
- Texts for embeddings and rankings are accounts of their own, `<request id>.<index>`.
- An answer that was kept for equal requests is held for and completed as the client is told: like the one that was
  computed.
- A request that was refused is opened as well, without a permit where none was had, and `reject`ed, or, where it found
  no place in the queue, `settle_unbilled`. Not so where its sender is not known (401, or 403 for the key itself): there
  is nobody to pay, and nobody without a key should cost a write.
- One whose client left before its receipt was opened leaves none; a permit that it has by then is refunded.
- One that its sender takes back with `POST /v1/cancel` is `abandon`ed, as one whose connection is closed.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

from memra.types import Lane, ModelName, RequestId

T = TypeVar("T")
Maybe: TypeAlias = T | Awaitable[T]
"""What a plain or a coroutine function returns."""


class Outcome(StrEnum):
    """How a request ended, as far as money is concerned."""

    COMPLETED = "completed"
    ABANDONED = "abandoned"
    """The client left: what was generated for it is billed."""
    DEADLINE_PARTIAL = "deadline_partial"
    """The deadline passed, and a part of the answer was delivered."""
    REJECTED = "rejected"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    SHED_DEADLINE = "shed_deadline"
    SHED_QUEUE = "shed_queue"
    SHED_QUEUE_WAIT = "shed_queue_wait"
    DRAIN_KILLED = "drain_killed"
    CRASHED = "crashed"

    @property
    def is_billable(self) -> bool:
        """Whether what was generated is paid for."""
        return self in {Outcome.COMPLETED, Outcome.ABANDONED, Outcome.DEADLINE_PARTIAL}


@dataclass(frozen=True, slots=True)
class RequestMeta:
    """What is known of a request when its receipt is opened.

    Attributes:
        principal: names the key within the tenant, or None.
        model: as asked for, which may be any text where the request was refused; empty where the body made no sense.
        route: path of the API, such as `/v1/chat/completions`.
        max_tokens: as the client asked, of one choice; None where it did not say.
        num_choices: answers to be generated.
        reserved_context_tokens: prompt and answer at their longest; None when it was refused before that was known.
    """

    request_id: RequestId
    tenant: str
    principal: str | None
    model: ModelName
    route: str
    lane: Lane
    is_stream: bool
    max_tokens: int | None = None
    num_choices: int = 1
    reserved_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """Tokens of a request, all its choices together.

    Attributes:
        prompt_tokens: of the rendered prompt, those from the cache included.
        cached_prompt_tokens: of these, what was reused.
        completion_tokens: generated.
    """

    prompt_tokens: int
    cached_prompt_tokens: int
    completion_tokens: int


class MeteringRefusal(Exception):  # noqa: N818  (a refusal is an answer, not a fault)
    """A tenant may not have this request; raised by `is_limited` and `reserve`."""


class InsufficientBalance(MeteringRefusal):
    """402 `insufficient_balance`: the worst case costs more than there is."""


class TenantBlocked(MeteringRefusal):
    """402 `insufficient_balance`: the tenant's admission is closed."""


class TenantNotEnrolled(MeteringRefusal):
    """402 `tenant_not_enrolled`."""


class KeySpendCapReached(MeteringRefusal):
    """402 `key_spend_cap_reached`: this key has spent what it may."""


class BudgetUnavailable(MeteringRefusal):
    """503 `tenant_budget_unavailable`: nobody can say at the moment; fail closed."""


class Permit(Protocol):
    """A hold for the worst case. Exactly one of two things happens to it: it is given to `open`, or refunded."""

    def refund(self) -> Maybe[None]:
        """Give back what was held: the request will not run."""
        ...


class Receipt(Protocol):
    """The account of one request, from its opening to exactly one of its ends."""

    @property
    def wants_capture(self) -> bool:
        """Whether prompt and answer are wanted as well; only ever true where `captures` was."""
        ...

    def arm_capture(self, prompt_json: bytes) -> None:
        """Take the request's body as sent. Must not block."""
        ...

    def capture_completion_delta(self, text: str) -> None:
        """Take more of the answer's text. Must not block."""
        ...

    def record_prompt_usage(self, prompt_tokens: int, cached_prompt_tokens: int) -> None:
        """Note that the worker took the prompt; again with the sums where there are several. Must not block."""
        ...

    def record_completion_tokens(self, num_tokens: int) -> None:
        """Note tokens that were generated since the last call; at an end, unread ones too. Must not block."""
        ...

    def complete(self, usage: UsageCounts, *, elapsed_s: float) -> Maybe[None]:
        """Settle an answer that is whole; awaited before its last bytes are sent.

        An exception here is told to the client as 500 `request_ledger_unavailable`.
        """
        ...

    def complete_deadline_partial(self, usage: UsageCounts, *, elapsed_s: float) -> Maybe[None]:
        """Settle the part that was there when the deadline passed; as `complete`."""
        ...

    def abandon(self) -> Maybe[None]:
        """Settle what was recorded: the client left before the end."""
        ...

    def reject(self, status: int, code: str | None) -> Maybe[None]:
        """Close without a bill: the request was refused.

        Args:
            status: of HTTP.
            code: of the error body.
        """
        ...

    def settle_unbilled(self, outcome: Outcome, status: int, code: str | None) -> Maybe[None]:
        """Close without a bill: the request was let in, and did not come to an end that is paid for."""
        ...


class Metering(Protocol):
    """A deployment's accounting."""

    @property
    def enforces_limits(self) -> bool:
        """Whether `is_limited` and `reserve` are asked at all."""
        ...

    def is_limited(self, tenant: str) -> Maybe[bool]:
        """Whether a tenant is enrolled, and so under a limit; false refuses it: 402 `tenant_not_enrolled`.

        Raises:
            MeteringRefusal: it may have nothing now.
        """
        ...

    def reserve(
        self, tenant: str, *, principal: str | None, model: ModelName, prompt_tokens: int, completion_bound: int
    ) -> Maybe[Permit | None]:
        """Hold the worst case, before anything is computed.

        Args:
            tenant: who pays.
            principal: names the key within the tenant, or None.
            model: as it is served.
            prompt_tokens: of the rendered prompt.
            completion_bound: tokens that all choices together may generate, at most.

        Raises:
            MeteringRefusal: see its leaves.
        """
        ...

    def open(self, meta: RequestMeta, permit: Permit | None) -> Maybe[Receipt]:
        """Open the receipt of a request, also of one that is refused; the permit is the receipt's from now on."""
        ...

    def captures(self, tenant: str) -> Maybe[bool]:
        """Whether prompts and answers of a tenant are wanted; false unless it agreed."""
        ...

    def limits_health(self) -> Maybe["LimitsHealth | None"]:
        """How the source of limits does, for `/metrics` (`limits_source_*`); None where there is none."""
        ...

    def drain_kill(self) -> None:
        """Take notice that the drain's time is over: who is abandoned from now on is our fault, and pays nothing."""
        ...


@dataclass(frozen=True, slots=True)
class LimitsHealth:
    """State of the source of limits.

    Attributes:
        source_reload_failed: reloads that failed since the start.
        source_reload_consecutive: of these, those in a row until now.
        source_available: whether limits can be told.
    """

    source_reload_failed: int
    source_reload_consecutive: int
    source_available: bool
