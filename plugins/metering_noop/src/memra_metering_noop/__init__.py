"""Metering that keeps nothing: the whole seam, in the fewest lines that memra takes. Copy it and fill it in.

Every method here may be a plain function, which memra runs in a worker thread, or a coroutine function. Those marked
"at once" are plain functions that are called where the request runs, and must not block. The contract, with every
promise in words, is `memra.plugins.metering`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memra.plugins import LimitsHealth, Metering, Outcome, Permit, Receipt, RequestMeta, UsageCounts, hookimpl
from memra.types import ModelName


@dataclass(frozen=True)
class NoopConfig:
    """The table `[plugins.metering_noop]`: there is nothing to set, so every key is refused."""


class NoopPermit:
    """A hold for the worst case of one request."""

    def refund(self) -> None:
        """Give back what was held: the request will not run."""


class NoopReceipt:
    """The account of one request; memra brings it to exactly one of its last five methods."""

    wants_capture = False

    def arm_capture(self, prompt_json: bytes) -> None:
        """Take the body as sent; at once. Called where `wants_capture` is true."""

    def capture_completion_delta(self, text: str) -> None:
        """Take more of the answer; at once. As above."""

    def record_prompt_usage(self, prompt_tokens: int, cached_prompt_tokens: int) -> None:
        """Note that the worker took the prompt; at once."""

    def record_completion_tokens(self, num_tokens: int) -> None:
        """Note that so many more tokens were generated; at once."""

    def complete(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle a whole answer. Its last bytes wait for this, and an exception takes the answer back: 500."""

    def complete_deadline_partial(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle what was there of an answer at its deadline."""

    def abandon(self) -> None:
        """Settle what was recorded: the client left."""

    def reject(self, status: int, code: str | None) -> None:
        """Close without a bill: the request was refused."""

    def settle_unbilled(self, outcome: Outcome, status: int, code: str | None) -> None:
        """Close without a bill: the request was let in and came to no end that is paid for."""


class NoopMetering:
    """The accounting of one server."""

    enforces_limits = True

    def is_limited(self, tenant: str) -> bool:  # noqa: ARG002  (everybody is enrolled)
        """Whether a tenant has an account; False is 402 `tenant_not_enrolled`."""
        return True

    def reserve(
        self,
        tenant: str,  # noqa: ARG002  (everybody may have everything, this and what follows)
        *,
        principal: str | None,  # noqa: ARG002
        model: ModelName,  # noqa: ARG002
        prompt_tokens: int,  # noqa: ARG002
        completion_bound: int,  # noqa: ARG002
    ) -> Permit:
        """Hold the worst case, or raise a `memra.plugins.MeteringRefusal`."""
        return NoopPermit()

    def open(self, meta: RequestMeta, permit: Permit | None) -> Receipt:  # noqa: ARG002  (nothing is kept)
        """Open the receipt of a request, refused ones too; the permit is the receipt's from now on."""
        return NoopReceipt()

    def captures(self, tenant: str) -> bool:  # noqa: ARG002  (nobody's)
        """Whether prompts and answers of a tenant are wanted."""
        return False

    def limits_health(self) -> LimitsHealth | None:
        """How the source of limits does, for `/metrics`; None: there is none."""
        return None

    def drain_kill(self) -> None:
        """Take notice, at once, that who leaves from now on was made to, and pays nothing."""


@hookimpl
def memra_config_schema() -> type:
    """Declare the plugin's table."""
    return NoopConfig


@hookimpl
def memra_metering(models: Sequence[ModelName]) -> Metering:  # noqa: ARG001  (prices would be looked up here)
    """Bring the accounting, once, when the models are known."""
    return NoopMetering()
