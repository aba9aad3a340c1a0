"""What the house asks of those who decide about requests and are paid for them: hooks of admission, and the accounting.

Parts that the composition root puts together, with nothing in them on a stock server. Refuses to know plugins by name,
and the way of a request: `account` goes it. Trio thread only.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio

from memra.errors import PluginFaultError
from memra.messages.identity import Identity
from memra.plugins import AdmissionQuestion, Verdict
from memra.plugins.metering_calls import MeteringCalls
from memra.telemetry import names

_HEALTH_WITHIN_S = 0.5
"""How long `/metrics` waits; a scraper gives up after seconds."""


async def _no_objection(_question: AdmissionQuestion) -> Verdict | None:
    return None


@dataclass(frozen=True, slots=True)
class Accounting:
    """One server's.

    Attributes:
        calls: the accounting; None where none is kept.
        describe: status and code of the answer to an error.
        admit: asks whether a request may come in.
        tell_started: called with each request that was let in; never waits.
    """

    calls: MeteringCalls | None = None
    describe: Callable[[BaseException], tuple[int, str | None]] = lambda _error: (500, None)
    admit: Callable[[AdmissionQuestion], Awaitable[Verdict | None]] = _no_objection
    tell_started: Callable[[AdmissionQuestion], object] = lambda _question: None

    async def captures(self, identity: Identity) -> bool:
        """Whether the bodies of somebody's requests are wanted; not where the accounting cannot say."""
        try:
            return self.calls is not None and await self.calls.captures(identity.tenant)
        except PluginFaultError:  # it is in the log, and no reason to refuse anybody
            return False

    def drain_kill(self) -> None:
        """Say that whoever leaves from now on was made to: nobody pays for that."""
        if self.calls is not None:
            self.calls.drain_kill()

    async def report(self) -> dict[str, Any]:
        """Return what `/metrics` shows of the source of limits; nothing where there is none."""
        if self.calls is None:
            return {}
        try:
            with trio.fail_after(_HEALTH_WITHIN_S):
                health = await self.calls.limits_health()
        except (PluginFaultError, trio.TooSlowError):
            return {names.METRIC_LIMITS_AVAILABLE: False}
        if health is None:
            return {}
        return {
            names.METRIC_LIMITS_RELOAD_FAILED: health.source_reload_failed,
            names.METRIC_LIMITS_RELOAD_CONSECUTIVE: health.source_reload_consecutive,
            names.METRIC_LIMITS_AVAILABLE: health.source_available,
        }
