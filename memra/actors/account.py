"""The account of one request: what it may cost is held before anything is computed, and it ends exactly once.

Trade: asks the accounting in the order that `memra.plugins.metering` promises, and remembers how far it came. A call
that was begun is waited for whatever happens to the request, so that nothing is held of which nobody knows; the calls'
own time limit bounds that. Without an accounting, an account is a name and costs nothing. Refuses to know prompts,
answers and the worker. Used by the request's own task.

A request pays for one item, its answers together, or for several, its texts; each item has a receipt of its own.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from memra.actors.account_items import Item, Line, record_into
from memra.actors.accounting import Accounting
from memra.actors.outcomes import error_of_refusal, outcome_of, unavailable
from memra.errors import DeniedError, LedgerUnavailableError, PluginFaultError
from memra.messages.generation import Usage
from memra.plugins import (
    AdmissionQuestion,
    Deny,
    MeteringRefusal,
    Outcome,
    Permit,
    RequestMeta,
    TenantNotEnrolled,
    UsageCounts,
)
from memra.plugins.metering_calls import MeteringCalls
from memra.types import RequestId


class Account:
    """See the module; `admit`, `hold` and `let_in` in this order, and at last `end`, whatever came of it."""

    def __init__(self, accounting: Accounting, meta: RequestMeta, *, body: bytes | None = None) -> None:
        """Hold nothing yet.

        Args:
            accounting: the server's.
            meta: what is known of the request.
            body: as sent, where it is to be captured.
        """
        self._accounting = accounting
        self._calls = accounting.calls
        self._meta = meta
        self._body = body
        self._lines: list[Line] = []
        self._is_let_in = False
        self._has_failed = False

    @property
    def is_kept(self) -> bool:
        """Whether anybody keeps accounts."""
        return self._calls is not None

    async def admit(self) -> int | None:
        """Ask plugins whether the request may come in, and the accounting about its tenant, before it takes a slot.

        Returns:
            Tokens that the answer may have at most, where a plugin says so.

        Raises:
            RequestError: it may not.
        """
        verdict = await self._accounting.admit(self._question())
        if isinstance(verdict, Deny):
            raise DeniedError(
                verdict.message, status=verdict.status, code=verdict.code, retry_after_s=verdict.retry_after_s
            )
        if self._calls is not None and self._calls.enforces_limits:
            await self._check_tenant(self._calls)
        return None if verdict is None else verdict.max_tokens

    async def hold(self, items: Sequence[Item]) -> None:
        """Hold the worst case of every item, and open its receipt.

        Raises:
            RequestError: 402 or 503.
        """
        if self._calls is None:
            return
        for item in items:
            await self._hold(self._calls, item)
            await trio.lowlevel.checkpoint_if_cancelled()
        if self._captures_into(self._lines[0]) and self._body is not None:
            self._calls.arm_capture(self._lines[0].receipt, self._body)

    def let_in(self) -> None:
        """Note that nothing stands between the request and the worker any more."""
        if not self._is_let_in:
            self._is_let_in = True
            self._accounting.tell_started(self._question())

    def record(self, usage: Usage | None) -> None:
        """Tell what was spent so far, of a request that is one item."""
        if self._calls is not None and usage is not None and self._lines and not self._lines[0].is_ended:
            record_into(self._calls, self._lines[0], usage)

    def record_prompts(self) -> None:
        """Tell that the worker took the prompts of all items."""
        if self._calls is not None:
            for line in self._lines:
                record_into(self._calls, line, Usage(line.item.prompt_tokens, 0, 0, 0.0))

    def capture(self, text: str) -> None:
        """Hand over more of the answer's text, where it is wanted."""
        if self._calls is not None and text and self._lines and self._captures_into(self._lines[0]):
            self._calls.capture_completion_delta(self._lines[0].receipt, text)

    async def complete(self, usage: Usage, *, is_partial: bool = False) -> None:
        """Settle a request that is one item; what it says is on the books when this returns.

        Args:
            usage: as the client is told.
            is_partial: the deadline cut the answer.

        Raises:
            LedgerUnavailableError: it could not be settled, and the answer must not be given out.
        """
        if self._calls is not None:
            self.record(usage)
            await self._settle(self._calls, self._lines[0], usage, is_partial=is_partial)

    async def complete_prompts(self, *, elapsed_s: float) -> None:
        """Settle items of which nothing but the prompts is paid for; as `complete`."""
        if self._calls is not None:
            for line in self._lines:
                await self._settle(self._calls, line, Usage(line.item.prompt_tokens, 0, 0, elapsed_s))

    async def end(self, error: BaseException | None = None) -> None:
        """End what has not ended; never raises, and waits for the accounting also where the request is cancelled.

        Args:
            error: with which the client was answered; None, or no `Exception`: the client left.
        """
        if self._calls is None:
            return
        with trio.CancelScope(shield=True):
            if isinstance(error, Exception):
                await self._end_failed(self._calls, error)
            else:
                for line in self._open_lines():
                    await self._end_line(self._calls, line, Outcome.ABANDONED)

    # -- inside

    def _question(self) -> AdmissionQuestion:
        meta = self._meta
        return AdmissionQuestion(
            meta.request_id,
            meta.tenant,
            meta.principal,
            meta.model,
            meta.route,
            meta.lane,
            meta.is_stream,
            meta.max_tokens,
            meta.num_choices,
        )

    async def _check_tenant(self, calls: MeteringCalls) -> None:
        try:
            with trio.CancelScope(shield=True):
                is_enrolled = await calls.is_limited(self._meta.tenant)
        except MeteringRefusal as refusal:
            raise error_of_refusal(refusal) from refusal
        except PluginFaultError as fault:
            raise self._failed() from fault
        if not is_enrolled:
            raise error_of_refusal(TenantNotEnrolled("is_limited answered False"))

    async def _hold(self, calls: MeteringCalls, item: Item) -> None:
        try:
            with trio.CancelScope(shield=True):
                permit = await self._reserve(calls, item)
            if permit is not None and trio.current_effective_deadline() <= trio.current_time():
                with trio.CancelScope(shield=True):
                    await calls.refund(permit)
                await trio.lowlevel.checkpoint()
            with trio.CancelScope(shield=True):
                receipt = await calls.open(self._meta_of(item), permit)
        except MeteringRefusal as refusal:
            raise error_of_refusal(refusal) from refusal
        except PluginFaultError as fault:
            raise self._failed() from fault
        self._lines.append(Line(item, receipt))

    async def _reserve(self, calls: MeteringCalls, item: Item) -> Permit | None:
        if not calls.enforces_limits:
            return None
        meta = self._meta
        return await calls.reserve(
            meta.tenant,
            principal=meta.principal,
            model=meta.model,
            prompt_tokens=item.prompt_tokens,
            completion_bound=item.completion_bound,
        )

    def _meta_of(self, item: Item) -> RequestMeta:
        request_id = self._meta.request_id
        if item.index is not None:
            request_id = RequestId(f"{request_id}.{item.index}")
        return replace(self._meta, request_id=request_id, reserved_context_tokens=item.context_tokens)

    def _failed(self) -> Exception:
        """Return the refusal of a request about which the accounting failed; it is not troubled with that one again."""
        self._has_failed = True
        return unavailable()

    def _captures_into(self, line: Line) -> bool:
        return self._body is not None and self._calls is not None and self._calls.wants_capture(line.receipt)

    def _open_lines(self) -> list[Line]:
        return [line for line in self._lines if not line.is_ended]

    async def _settle(self, calls: MeteringCalls, line: Line, usage: Usage, *, is_partial: bool = False) -> None:
        line.is_ended = True
        counts = UsageCounts(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        settle = calls.complete_deadline_partial if is_partial else calls.complete
        try:
            with trio.CancelScope(shield=True):
                await settle(line.receipt, counts, elapsed_s=usage.elapsed_s)
        except PluginFaultError as fault:
            raise LedgerUnavailableError(
                "The answer could not be written into the accounts; it costs nothing. Send the request again."
            ) from fault

    async def _end_failed(self, calls: MeteringCalls, error: Exception) -> None:
        outcome = outcome_of(error, is_let_in=self._is_let_in)
        status, code = self._accounting.describe(error)
        if not self._lines and not self._has_failed:
            try:
                receipt = await calls.open(self._meta, None)
            except PluginFaultError:  # it is in the log; there is nothing to bill
                return
            self._lines.append(Line(Item(0, 0, 0), receipt))
        for line in self._open_lines():
            await self._end_line(calls, line, outcome, status, code)

    async def _end_line(
        self, calls: MeteringCalls, line: Line, outcome: Outcome, status: int = 0, code: str | None = None
    ) -> None:
        line.is_ended = True
        try:
            if outcome is Outcome.ABANDONED:
                await calls.abandon(line.receipt)
            elif outcome is Outcome.REJECTED:
                await calls.reject(line.receipt, status, code)
            else:
                await calls.settle_unbilled(line.receipt, outcome, status, code)
        except PluginFaultError:  # it is in the log; the client has its answer, or is gone
            return


@asynccontextmanager
async def ending(account: Account) -> AsyncIterator[None]:
    """End an account with what ends the context: an error, the client's leaving, or nothing after it was completed."""
    try:
        yield
    except (Exception, trio.Cancelled) as error:
        await account.end(error)
        raise
    await account.end()
