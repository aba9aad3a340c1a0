"""What the headers of a generation request say: who asks, in which lane and conversation, under which trace.

Refuses to judge keys: the house does. Called by the generation routes.
"""

import re
from dataclasses import dataclass, field

from werkzeug.datastructures import Headers

from memra.errors import ForbiddenError, InvalidLaneError, InvalidRequestError
from memra.messages.identity import ANYBODY, Credentials, Identity, KeyClass
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
        identity: whoever sends it.
        traceparent: W3C trace context, or None.
        conversation: from `x-session-id`, or None.
        client_id: from `x-request-id`: the client's own name for the request, or None.
    """

    lane: Lane
    identity: Identity = ANYBODY
    traceparent: str | None = None
    conversation: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, repr=False)


def read_credentials(headers: Headers) -> Credentials:
    """Return what the client presents; nothing is judged, so that this can be judged before all else.

    The key is the bearer token or, as Anthropic's clients send it, the header `x-api-key`.
    """
    key = _bearer(headers.get("authorization", "")) or headers.get("x-api-key", "").strip() or None
    return Credentials(key, {name.lower(): value for name, value in headers})


def read_caller(headers: Headers, identity: Identity = ANYBODY) -> Caller:
    """Read the headers of somebody's request.

    Raises:
        ForbiddenError: `x-lane` names a lane that is not for this key.
        InvalidLaneError: `x-lane` names no lane.
        InvalidRequestError: a name is too long, or holds control characters.
    """
    trace = headers.get("traceparent", "")
    return Caller(
        lane=_lane(headers.get("x-lane"), identity.key_class),
        identity=identity,
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


def _lane(name: str | None, key_class: KeyClass) -> Lane:
    if name is None:
        return key_class.default_lane
    try:
        lane = Lane(name.strip().lower())
    except ValueError:
        lanes = ", ".join(lane.value for lane in Lane)
        raise InvalidLaneError(f"The header x-lane must be one of {lanes}.", param="x-lane") from None
    if not key_class.may_use(lane):
        lanes = " or ".join(lane.value for lane in Lane if key_class.may_use(lane))
        raise ForbiddenError(f"This key is not for the {lane.value} lane; send x-lane: {lanes}.", param="x-lane")
    return lane


def _bearer(value: str) -> str | None:
    scheme, _, token = value.strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
