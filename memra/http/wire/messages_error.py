"""Errors in Anthropic's shape: what a client of the Messages API sees instead of OpenAI's.

Refuses to know why an error happened: `memra.http.errors` has said it, and this module says it in other words. Called
by the application for refusals, and by `messages_answer` for streams.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from memra.http.errors import ErrorReply, ErrorShape

_PATH = "/v1/messages"

_BY_CODE: Mapping[str, str] = {
    "not_found": "not_found_error",
    "model_not_found": "not_found_error",
    "request_too_large": "request_too_large",
    "model_load_failed": "overloaded_error",
    "overloaded": "overloaded_error",
    "draining": "overloaded_error",
    "insufficient_balance": "billing_error",
    "tenant_not_enrolled": "billing_error",
    "key_spend_cap_reached": "billing_error",
}
_BY_TYPE: Mapping[str, str] = {
    "timeout": "timeout_error",
    "cancelled": "invalid_request_error",
    "server_error": "api_error",
}
"""Anthropic's types by our codes, else by our types; the other types have the same name there."""

_FORBIDDEN = 403
"""Known and not allowed: a type of its own there, while OpenAI's shape has one for both."""

_STATUSES: Mapping[str, int] = {"not_found_error": 404, "overloaded_error": 529}
"""By type: statuses that Anthropic's clients know and that differ from ours."""


def speaks_messages(path: str) -> bool:
    """Tell whether whoever asks for a path expects Anthropic's shape."""
    return path == _PATH or path.startswith(f"{_PATH}/")


def messages_reply(reply: ErrorReply, request_id: str | None) -> ErrorReply:
    """Return the same answer in Anthropic's shape, with its status and type."""
    body = messages_error(msgspec.json.decode(reply.body)["error"])
    if reply.status == _FORBIDDEN:
        body["error"]["type"] = "permission_error"
    status = _STATUSES.get(body["error"]["type"], reply.status)
    return replace(reply, status=status, body=msgspec.json.encode({**body, "request_id": request_id}))


def messages_status(shape: ErrorShape) -> int:
    """Return the status that a kind of error has in Anthropic's shape."""
    return _STATUSES.get(_kind(shape.type, shape.code), shape.status)


def messages_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return Anthropic's error with its envelope, from OpenAI's without."""
    kind = _kind(error["type"], error["code"])
    return {"type": "error", "error": {"type": kind, "message": error["message"]}}


def _kind(kind: str, code: str | None) -> str:
    return (_BY_CODE.get(code) if code else None) or _BY_TYPE.get(kind, kind)
