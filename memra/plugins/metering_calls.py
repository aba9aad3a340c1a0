"""A plugin's accounting, called as plugins are called: with a time limit, and named in the log when it fails.

Trade: a coroutine for each method of `Metering`, `Permit` and `Receipt` that may wait: a `MeteringRefusal` is an answer
and passes through, everything else is a `PluginFaultError`. And a plain function for each that must not wait: what goes
wrong there is logged and disturbs nobody. Refuses to know when a request is asked about what.
"""

import logging
from collections.abc import Callable
from typing import Any

from memra.plugins.answers import METERING_PARTS, RECEIPT_PARTS, a_bool, having, nothing, some_health
from memra.plugins.calling import FAULTS, Ask, PluginCalls
from memra.plugins.metering import (
    LimitsHealth,
    Metering,
    MeteringRefusal,
    Outcome,
    Permit,
    Receipt,
    RequestMeta,
    UsageCounts,
)
from memra.plugins.plugin import Plugin
from memra.types import ModelName

log = logging.getLogger(__name__)

a_metering = having(*METERING_PARTS, what="a Metering or None", or_none=True)
_a_permit = having("refund", what="a Permit or None", or_none=True)
_a_receipt = having(*RECEIPT_PARTS, what="a Receipt")


class MeteringCalls:
    """The accounting of one server; every coroutine raises `PluginFaultError` where the plugin fails."""

    def __init__(self, plugin: Plugin, metering: Metering, calls: PluginCalls) -> None:
        """Take the accounting and whose it is."""
        self.plugin = plugin
        self.metering = metering
        self._calls = calls

    async def is_limited(self, tenant: str) -> bool:
        """Ask whether a tenant is enrolled.

        Raises:
            MeteringRefusal: it may have nothing now.
        """
        answer: bool = await self._ask(
            "is_limited", self.metering.is_limited, tenant, check=a_bool, passes=(MeteringRefusal,)
        )
        return answer

    async def reserve(
        self, tenant: str, *, principal: str | None, model: ModelName, prompt_tokens: int, completion_bound: int
    ) -> Permit | None:
        """Hold the worst case.

        Raises:
            MeteringRefusal: it cannot be had.
        """
        permit: Permit | None = await self._ask(
            "reserve",
            self.metering.reserve,
            tenant,
            principal=principal,
            model=model,
            prompt_tokens=prompt_tokens,
            completion_bound=completion_bound,
            check=_a_permit,
            passes=(MeteringRefusal,),
        )
        return permit

    async def refund(self, permit: Permit) -> None:
        """Give back what was held."""
        await self._ask("refund", permit.refund, check=nothing)

    async def open(self, meta: RequestMeta, permit: Permit | None) -> Receipt:
        """Open a receipt."""
        receipt: Receipt = await self._ask("open", self.metering.open, meta, permit, check=_a_receipt)
        return receipt

    async def captures(self, tenant: str) -> bool:
        """Ask whether a tenant's prompts and answers are wanted."""
        answer: bool = await self._ask("captures", self.metering.captures, tenant, check=a_bool)
        return answer

    async def limits_health(self) -> LimitsHealth | None:
        """Ask how the source of limits does."""
        health: LimitsHealth | None = await self._ask("limits_health", self.metering.limits_health, check=some_health)
        return health

    async def complete(self, receipt: Receipt, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle an answer that is whole."""
        await self._ask("complete", receipt.complete, usage, elapsed_s=elapsed_s, check=nothing)

    async def complete_deadline_partial(self, receipt: Receipt, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle the part that was there when the deadline passed."""
        await self._ask(
            "complete_deadline_partial", receipt.complete_deadline_partial, usage, elapsed_s=elapsed_s, check=nothing
        )

    async def abandon(self, receipt: Receipt) -> None:
        """Settle what was recorded until the client left."""
        await self._ask("abandon", receipt.abandon, check=nothing)

    async def reject(self, receipt: Receipt, status: int, code: str | None) -> None:
        """Close the receipt of a request that was refused."""
        await self._ask("reject", receipt.reject, status, code, check=nothing)

    async def settle_unbilled(self, receipt: Receipt, outcome: Outcome, status: int, code: str | None) -> None:
        """Close the receipt of a request that came to no end that is paid for."""
        await self._ask("settle_unbilled", receipt.settle_unbilled, outcome, status, code, check=nothing)

    @property
    def enforces_limits(self) -> bool:
        """Whether tenants are limited; they are where the accounting cannot say."""
        return self._note("enforces_limits", lambda: a_bool(self.metering.enforces_limits)) is not False

    def wants_capture(self, receipt: Receipt) -> bool:
        """Whether prompt and answer are wanted; not where the receipt cannot say."""
        return self._note("wants_capture", lambda: a_bool(receipt.wants_capture)) is True

    def arm_capture(self, receipt: Receipt, prompt_json: bytes) -> None:
        """Hand over the request's body as sent."""
        self._note("arm_capture", lambda: receipt.arm_capture(prompt_json))

    def capture_completion_delta(self, receipt: Receipt, text: str) -> None:
        """Hand over more of the answer's text."""
        self._note("capture_completion_delta", lambda: receipt.capture_completion_delta(text))

    def record_prompt_usage(self, receipt: Receipt, prompt_tokens: int, cached_prompt_tokens: int) -> None:
        """Tell that the worker took the prompt."""
        self._note("record_prompt_usage", lambda: receipt.record_prompt_usage(prompt_tokens, cached_prompt_tokens))

    def record_completion_tokens(self, receipt: Receipt, num_tokens: int) -> None:
        """Tell of tokens that were generated since the last call."""
        self._note("record_completion_tokens", lambda: receipt.record_completion_tokens(num_tokens))

    def drain_kill(self) -> None:
        """Tell that the drain's time is over."""
        self._note("drain_kill", self.metering.drain_kill)

    def _note(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except FAULTS:
            log.exception("plugin %s: memra_metering: %s failed", self.plugin.name, what)
            return None

    async def _ask(
        self,
        what: str,
        function: Any,
        *args: Any,
        check: Any,
        passes: tuple[type[BaseException], ...] = (),
        **kwargs: Any,
    ) -> Any:
        ask = Ask(self.plugin, f"memra_metering: {what}", function, check=check, passes=passes)
        return await self._calls.ask(ask, *args, **kwargs)
