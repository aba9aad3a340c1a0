"""The public door: hook specifications, the contracts behind them, and the plugin manager.

A plugin is a module (or object) named by an entry point of the group `memra`. It marks its functions with `hookimpl`:

    from memra.plugins import hookimpl

    @hookimpl
    def memra_request_ended(record): ...

What stands in `__all__` is kept stable, `API_VERSION` counting the breaks; built-in features use the same door. No hook
lies on the path of a token.
"""

from memra.messages.admission import RequestEnded
from memra.messages.identity import Credentials, Identity, KeyClass
from memra.plugins.commands import Command
from memra.plugins.feeds import Feed, FeedUnavailableError, FileFeed, ModelCard
from memra.plugins.handles import HandlesClosedError, NewKey, RunningRequest, RuntimeHandles
from memra.plugins.markers import API_VERSION, hookimpl
from memra.plugins.metering import (
    BudgetUnavailable,
    InsufficientBalance,
    KeySpendCapReached,
    LimitsHealth,
    Metering,
    MeteringRefusal,
    Outcome,
    Permit,
    Receipt,
    RequestMeta,
    TenantBlocked,
    TenantNotEnrolled,
    UsageCounts,
)
from memra.plugins.questions import AdmissionQuestion, Deny, Limit, Verdict

__all__ = [
    "API_VERSION",
    "AdmissionQuestion",
    "BudgetUnavailable",
    "Command",
    "Credentials",
    "Deny",
    "Feed",
    "FeedUnavailableError",
    "FileFeed",
    "HandlesClosedError",
    "Identity",
    "InsufficientBalance",
    "KeyClass",
    "KeySpendCapReached",
    "Limit",
    "LimitsHealth",
    "Metering",
    "MeteringRefusal",
    "ModelCard",
    "NewKey",
    "Outcome",
    "Permit",
    "Receipt",
    "RequestEnded",
    "RequestMeta",
    "RunningRequest",
    "RuntimeHandles",
    "TenantBlocked",
    "TenantNotEnrolled",
    "UsageCounts",
    "Verdict",
    "hookimpl",
]
