"""What counts as an answer to a hook: every check returns the answer, or says what is wrong with it.

Trade: types and bounds of plugins' answers, so that nonsense is found where it was said and not where it hurts. Refuses
to know who answered.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memra.messages.identity import MAX_TENANT_CHARS, Identity, KeyClass, is_tenant
from memra.plugins.metering import LimitsHealth
from memra.plugins.questions import Deny, Limit, Verdict

METERING_PARTS = (
    "enforces_limits", "is_limited", "reserve", "open", "captures", "limits_health", "drain_kill",
)  # fmt: skip
RECEIPT_PARTS = (
    "wants_capture", "arm_capture", "capture_completion_delta", "record_prompt_usage", "record_completion_tokens",
    "complete", "complete_deadline_partial", "abandon", "reject", "settle_unbilled",
)  # fmt: skip
DIALECT_PARTS = ("name", "tokens", "knows", "open", "grammar")

_LEAST_ERROR, _LARGEST_ERROR = 400, 599


class NonsenseError(TypeError):
    """A plugin answered something that its hook does not provide for."""

    def __init__(self, answer: object, wanted: str) -> None:
        """Name the answer by its type alone: its text may be anybody's."""
        super().__init__(f"answered {type(answer).__name__}, and must answer {wanted}")


def an_identity(answer: Any) -> Identity | None:
    """Check who a plugin says that somebody is."""
    if answer is None:
        return None
    if not isinstance(answer, Identity) or not is_tenant(answer.tenant):
        raise NonsenseError(answer, f"an Identity with a tenant of at most {MAX_TENANT_CHARS} A-Z a-z 0-9 _ -, or None")
    principal: Any = answer.principal
    key_class: Any = answer.key_class
    if not isinstance(principal, str | None) or not isinstance(key_class, KeyClass):
        raise NonsenseError(answer, "an Identity with a KeyClass, and with a name or None as its principal")
    limit: Any = answer.max_inflight
    if limit is not None and (type(limit) is not int or limit < 1):
        raise NonsenseError(answer, "an Identity with at least 1 request at once, or None for no limit")
    return answer


def a_verdict(answer: Any) -> Verdict | None:
    """Check what a plugin says about a request."""
    if isinstance(answer, Deny):
        status = answer.status
        if (
            type(status) is not int
            or not _LEAST_ERROR <= status <= _LARGEST_ERROR
            or not isinstance(answer.message, str)
        ):
            raise NonsenseError(answer, f"a Deny with a message and a status from {_LEAST_ERROR} to {_LARGEST_ERROR}")
        return answer
    if isinstance(answer, Limit):
        if type(answer.max_tokens) is not int or answer.max_tokens < 1:
            raise NonsenseError(answer, "a Limit of at least 1 token")
        return answer
    if answer is not None:
        raise NonsenseError(answer, "Deny, Limit or None")
    return None


def a_bool(answer: Any) -> bool:
    """Check a yes or no."""
    if not isinstance(answer, bool):
        raise NonsenseError(answer, "True or False")
    return answer


def some_health(answer: Any) -> LimitsHealth | None:
    """Check what is said of the source of limits."""
    if answer is not None and not isinstance(answer, LimitsHealth):
        raise NonsenseError(answer, "a LimitsHealth or None")
    return answer


def nothing(answer: Any) -> None:
    """Take whatever comes where nothing is asked for."""
    del answer


def having(*parts: str, what: str, or_none: bool = False) -> Any:
    """Return the check of an object by the names of its parts."""

    def check(answer: Any) -> Any:
        missing = [part for part in parts if not hasattr(answer, part)]
        if missing and not (or_none and answer is None):
            raise NonsenseError(answer, f"{what}; this has no {', '.join(missing)}")
        return answer

    return check


def a_list(answer: Any) -> Sequence[Any]:
    """Check a list of anything."""
    if isinstance(answer, str | bytes) or not isinstance(answer, Sequence):
        raise NonsenseError(answer, "a list")
    return answer


def a_mapping(answer: Any) -> Mapping[str, Any]:
    """Check a JSON object to be."""
    if not isinstance(answer, Mapping):
        raise NonsenseError(answer, "a mapping")
    return answer


def a_path(answer: Any) -> Path | None:
    """Check where a model lies."""
    if answer is not None and not (isinstance(answer, Path) and answer.exists()):
        raise NonsenseError(answer, "the path of something that exists, or None")
    return answer


def a_template(answer: Any) -> str | None:
    """Check the source of a chat template."""
    if answer is not None and not isinstance(answer, str):
        raise NonsenseError(answer, "the source of a Jinja template, or None")
    return answer
