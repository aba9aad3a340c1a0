"""What the headers of a generation request say: who asks, in which lane and conversation, under which trace.

Refuses to judge keys: `memra.gate` does. Called by the generation routes.
"""

import re
from dataclasses import dataclass, field

from werkzeug.datastructures import Headers

from memra.errors import InvalidLaneError, InvalidRequestError
from memra.types import Lane

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context, version 00; anything else is dropped, since a broken trace must not fail a request."""

MAX_HEADERS = 64
"""Most headers of a request; clients with SDKs behind two proxies send about 40."""

MAX_LABEL_BYTES = 256
"""Longest name that a client may give to a conversation or a user."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Caller:
    """The part of a request that is not in its body.

    Attributes:
        api_key: the key as sent, or None.
        traceparent: W3C trace context, or None.
        conversation: from `x-session-id`, or None.
        client_id: from `x-request-id`: the client's own name for the request, or None.
    """

    lane: Lane
    api_key: str | None = field(default=None, repr=False)
    traceparent: str | None = None
    conversation: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, repr=False)


def read_key(headers: Headers) -> str | None:
    """Return the key as sent, or None; nothing else is looked at, so that the key can be judged first.

    It is the bearer token or, as Anthropic's clients send it, the header `x-api-key`.
    """
    return _bearer(headers.get("authorization", "")) or headers.get("x-api-key", "").strip() or None


def read_caller(headers: Headers) -> Caller:
    """Read the headers.

    Raises:
        InvalidLaneError: `x-lane` names no lane.
        InvalidRequestError: a name is too long, or holds control characters.
    """
    trace = headers.get("traceparent", "")
    return Caller(
        lane=_lane(headers.get("x-lane")),
        api_key=read_key(headers),
        traceparent=trace if _TRACEPARENT.fullmatch(trace) else None,
        conversation=_label(headers, "x-session-id"),
        client_id=_label(headers, "x-request-id"),
    )


def is_label(text: str) -> bool:
    """Tell whether a text may name a conversation or a user."""
    return len(text.encode("utf-8", "surrogateescape")) <= MAX_LABEL_BYTES and not _CONTROL.search(text)


def _label(headers: Headers, header: str) -> str | None:
    name = headers.get(header, "")
    if not is_label(name):
        raise InvalidRequestError(
            f"The header {header} must be at most {MAX_LABEL_BYTES} bytes without control characters.", param=header
        )
    return name.strip() or None


def _lane(name: str | None) -> Lane:
    if name is None:
        return Lane.INTERACTIVE
    try:
        return Lane(name.strip().lower())
    except ValueError:
        lanes = ", ".join(lane.value for lane in Lane)
        raise InvalidLaneError(f"The header x-lane must be one of {lanes}.", param="x-lane") from None


def _bearer(value: str) -> str | None:
    scheme, _, token = value.strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
