"""What an error means to whoever keeps accounts: how the request ended, and what its client is told of a refusal.

A pure translation between the accounting's words and the house's, both ways. Refuses to know who keeps accounts, and
status codes. Called by `account`.
"""

import logging

from memra.errors import (
    BudgetUnavailableError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    DrainingError,
    EngineFaultError,
    InsufficientBalanceError,
    KeySpendCapError,
    LedgerUnavailableError,
    OverloadedError,
    QueueFullError,
    QueueWaitError,
    RequestCancelledError,
    RequestError,
    TenantNotEnrolledError,
)
from memra.plugins import (
    BudgetUnavailable,
    InsufficientBalance,
    KeySpendCapReached,
    MeteringRefusal,
    Outcome,
    TenantBlocked,
    TenantNotEnrolled,
)

log = logging.getLogger(__name__)

_KEPT_OUT: dict[type[RequestError], Outcome] = {
    QueueFullError: Outcome.SHED_QUEUE,
    DeadlineUnreachableError: Outcome.SHED_DEADLINE,
    QueueWaitError: Outcome.SHED_QUEUE_WAIT,
    DeadlineExceededError: Outcome.DEADLINE_EXCEEDED,
}
"""Errors that mean the same whenever they come."""

_BROKEN: dict[type[RequestError], Outcome] = {
    RequestCancelledError: Outcome.ABANDONED,
    DrainingError: Outcome.DRAIN_KILLED,
    OverloadedError: Outcome.CRASHED,
    EngineFaultError: Outcome.CRASHED,
    LedgerUnavailableError: Outcome.CRASHED,
}
"""Errors that mean this once the request was let in, and before that a refusal."""

_REFUSALS: dict[type[MeteringRefusal], tuple[type[RequestError], str]] = {
    InsufficientBalance: (
        InsufficientBalanceError,
        "The balance does not cover this request at its longest; add to it, or ask for a smaller `max_tokens`.",
    ),
    TenantBlocked: (InsufficientBalanceError, "Requests of this tenant are not let in at the moment."),
    TenantNotEnrolled: (TenantNotEnrolledError, "This tenant has no account on this server; have one opened."),
    KeySpendCapReached: (KeySpendCapError, "This key has spent what it may; use another one, or have the cap raised."),
}
"""What a client is told; what the accounting says itself stands in the log, for it may name sums."""


def outcome_of(error: Exception, *, is_let_in: bool) -> Outcome:
    """Return how a request ended that failed.

    Args:
        error: with which its client was answered.
        is_let_in: nothing stood between the request and the worker any more.
    """
    by_kind = _KEPT_OUT | _BROKEN if is_let_in else _KEPT_OUT
    for kind in type(error).__mro__:
        if kind in by_kind:
            return by_kind[kind]
    return Outcome.REJECTED if isinstance(error, RequestError) else Outcome.CRASHED


def error_of_refusal(refusal: MeteringRefusal) -> RequestError:
    """Return what a client is told of a refusal by the accounting, and log what that said."""
    log.info("refused by the accounting: %s: %s", type(refusal).__name__, refusal)
    for kind, (error, words) in _REFUSALS.items():
        if isinstance(refusal, kind):
            return error(words)
    if not isinstance(refusal, BudgetUnavailable):
        log.warning("a refusal of no known kind is taken for BudgetUnavailable")
    return unavailable()


def unavailable() -> BudgetUnavailableError:
    """Return what a client is told where nobody can say whether it may have the request."""
    return BudgetUnavailableError("The accounts of this server cannot be asked at the moment; try again shortly.")
