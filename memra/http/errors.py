"""What a client sees of an error: the only place that knows status codes.

Refuses to know why an error happened. Routes raise leaves of `memra.errors`; quart raises werkzeug's exceptions for
what it finds itself; everything else is a fault of ours and is answered without its text. The table is documented in
docs/reference/errors.md, which a test compares with it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from werkzeug.exceptions import HTTPException

from memra import errors
from memra.http.slot_headers import slot_headers

MAX_RETRY_AFTER_S = 60
"""Longest wait that is ever advised: a client should ask again rather than believe an old estimate."""

_RETRYABLE_STATUSES = frozenset({408, 409, 429})

FAULT_MESSAGE = "The server failed while it worked on this request; its log names the cause under this request's id."


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How one kind of error looks on the wire."""

    status: int
    type: str
    code: str | None


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A complete answer to a request that failed.

    Attributes:
        body: the JSON error object; also what a stream carries in a `data:` line.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]


SHAPES: Mapping[type[errors.RequestError], ErrorShape] = {
    errors.InvalidRequestError: ErrorShape(400, "invalid_request_error", None),
    # 400, not 404: aggregators count a 404 as the server being away.
    errors.UnknownModelError: ErrorShape(400, "invalid_request_error", "model_not_found"),
    errors.WrongTaskError: ErrorShape(400, "invalid_request_error", "model_task_mismatch"),
    errors.InvalidLaneError: ErrorShape(400, "invalid_request_error", "invalid_lane"),
    errors.ContextLengthError: ErrorShape(400, "invalid_request_error", "context_length_exceeded"),
    errors.RequestTooLongForMemoryError: ErrorShape(400, "invalid_request_error", "request_exceeds_memory"),
    errors.InfeasibleDeadlineError: ErrorShape(400, "invalid_request_error", "nonstream_deadline_infeasible"),
    errors.AuthenticationError: ErrorShape(401, "authentication_error", None),
    errors.InsufficientBalanceError: ErrorShape(402, "insufficient_balance", "insufficient_balance"),
    errors.TenantNotEnrolledError: ErrorShape(402, "tenant_not_enrolled", "tenant_not_enrolled"),
    errors.KeySpendCapError: ErrorShape(402, "key_spend_cap_reached", "key_spend_cap_reached"),
    errors.ForbiddenError: ErrorShape(403, "authentication_error", None),
    errors.DeniedError: ErrorShape(403, "authentication_error", None),
    errors.UnlistedModelError: ErrorShape(404, "invalid_request_error", "model_not_found"),
    errors.UnknownRequestError: ErrorShape(404, "invalid_request_error", "request_not_found"),
    errors.DeadlineExceededError: ErrorShape(408, "timeout", "deadline_exceeded"),
    errors.BodyTooLargeError: ErrorShape(413, "invalid_request_error", "request_too_large"),
    errors.BusyError: ErrorShape(429, "rate_limit_error", "rate_limit_exceeded"),
    errors.QueueFullError: ErrorShape(429, "rate_limit_error", "shed_queue"),
    errors.DeadlineUnreachableError: ErrorShape(429, "rate_limit_error", "shed_deadline"),
    errors.QueueWaitError: ErrorShape(429, "rate_limit_error", "shed_queue_wait"),
    errors.BodyBusyError: ErrorShape(429, "rate_limit_error", "body_admission_busy"),
    # 499 is nginx's status for a client that takes its request back.
    errors.RequestCancelledError: ErrorShape(499, "cancelled", "request_cancelled"),
    errors.EngineFaultError: ErrorShape(500, "server_error", "engine_error"),
    errors.WorkerFaultError: ErrorShape(500, "server_error", "worker_fault"),
    errors.GrammarDeadEndError: ErrorShape(500, "server_error", "grammar_dead_end"),
    errors.LedgerUnavailableError: ErrorShape(500, "server_error", "request_ledger_unavailable"),
    errors.ModelLoadError: ErrorShape(503, "server_error", "model_load_failed"),
    errors.OverloadedError: ErrorShape(503, "server_error", "overloaded"),
    errors.DrainingError: ErrorShape(503, "server_error", "draining"),
    errors.PluginFaultError: ErrorShape(503, "server_error", "plugin_fault"),
    errors.BudgetUnavailableError: ErrorShape(503, "server_error", "tenant_budget_unavailable"),
}
"""Leaves without a row of their own look like their nearest ancestor."""

HTTP_SHAPES: Mapping[int, ErrorShape] = {
    404: ErrorShape(404, "invalid_request_error", "not_found"),
    405: ErrorShape(405, "invalid_request_error", "method_not_allowed"),
    408: ErrorShape(408, "timeout", "request_body_timeout"),
    415: ErrorShape(415, "invalid_request_error", "unsupported_media_type"),
    431: ErrorShape(431, "invalid_request_error", "request_header_fields_too_large"),
}
"""What is found before a request has a meaning, by status."""

MALFORMED_SHAPES: Mapping[int, ErrorShape] = {
    400: ErrorShape(400, "invalid_request_error", "malformed_request"),
    408: ErrorShape(408, "timeout", "request_head_timeout"),
    431: HTTP_SHAPES[431],
    501: ErrorShape(501, "invalid_request_error", "not_implemented"),
}
"""What is found before there is a request at all, by status; the last is about an encoding of the body."""

_MALFORMED_MESSAGES = {
    400: "The request is not valid HTTP.",
    408: "The head of the request did not arrive in time.",
    431: "The head of the request is larger than this server takes.",
    501: "The request body comes in a transfer encoding that this server does not know; send it plain or chunked.",
}

_DENIED_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "authentication_error",
    429: "rate_limit_error",
}
"""Type of the error body for the statuses that a plugin denies with; others go by their class."""

_HTTP_MESSAGES = {
    404: "There is no such path here; the API is under /v1, and GET / says where to begin.",
    405: "This path does not take that method; the header Allow lists those that it takes.",
}


def reply_to(error: BaseException) -> ErrorReply:
    """Return the answer to a request that ended with an error of any kind."""
    cause = cause_of(error)
    if isinstance(cause, errors.RequestError):
        shape = _shape_of(cause)
        return _reply(shape, cause.message, param=cause.param, headers=_wait_headers(cause))
    if isinstance(cause, HTTPException) and cause.code is not None:
        return _reply_to_http(cause, cause.code)
    return _reply(SHAPES[errors.EngineFaultError], FAULT_MESSAGE)


def reply_to_malformed(status: int) -> ErrorReply:
    """Return the answer to what is no request.

    Args:
        status: as the protocol's reader has it; one that is not known here is taken for 400.
    """
    known = status if status in MALFORMED_SHAPES else 400
    return _reply(MALFORMED_SHAPES[known], _MALFORMED_MESSAGES[known])


def status_and_code(error: BaseException) -> tuple[int, str | None]:
    """Return what `reply_to` says in short: the status, and the code of the body."""
    cause = cause_of(error)
    if isinstance(cause, errors.RequestError):
        shape = _shape_of(cause)
    elif isinstance(cause, HTTPException) and cause.code is not None:
        shape = _http_shape(cause.code)
    else:
        shape = SHAPES[errors.EngineFaultError]
    return shape.status, shape.code


def error_object(error: errors.RequestError) -> Mapping[str, str | None]:
    """Return what stands under `error` in a body: also beside an answer that was cut short."""
    return _error_object(_shape_of(error), error.message, param=error.param)


def is_unexpected(error: BaseException) -> bool:
    """Tell whether an error is a fault of the program, whose cause belongs in the log."""
    return not isinstance(cause_of(error), errors.RequestError | HTTPException)


def cause_of(error: BaseException) -> BaseException:
    """Return the one error within nested groups of one, or the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _shape_of(error: errors.RequestError) -> ErrorShape:
    if isinstance(error, errors.DeniedError):
        return ErrorShape(error.status, _DENIED_TYPES.get(error.status, _type_of(error.status)), error.code)
    return next(SHAPES[kind] for kind in type(error).__mro__ if kind in SHAPES or kind is errors.RequestError)


def _http_shape(status: int) -> ErrorShape:
    return HTTP_SHAPES.get(status) or ErrorShape(status, "invalid_request_error", None)


def _type_of(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004  (the 5xx class)


def _error_object(shape: ErrorShape, message: str, *, param: str | None) -> Mapping[str, str | None]:
    return {"message": message, "type": shape.type, "param": param, "code": shape.code}


def _reply_to_http(error: HTTPException, status: int) -> ErrorReply:
    shape = _http_shape(status)
    headers = {}
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        headers["Allow"] = ", ".join(sorted(allowed))
    return _reply(shape, _HTTP_MESSAGES.get(status) or error.description or error.name, headers=headers)


def _reply(
    shape: ErrorShape,
    message: str,
    *,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ErrorReply:
    body = {"error": _error_object(shape, message, param=param)}
    return ErrorReply(shape.status, msgspec.json.encode(body), {**(headers or {}), **_final_headers(shape.status)})


def retry_after_headers(retry_after_s: float) -> dict[str, str]:
    """Return `Retry-After` in whole seconds from 1 to `MAX_RETRY_AFTER_S`, and the same in milliseconds."""
    seconds = _whole_seconds(retry_after_s)
    return {"Retry-After": str(seconds), "retry-after-ms": str(seconds * 1000)}


def _whole_seconds(retry_after_s: float) -> int:
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(retry_after_s)))


def _wait_headers(error: errors.RequestError) -> dict[str, str]:
    if isinstance(error, errors.BusyError):
        return _busy_headers(error)
    if isinstance(error, errors.DeniedError) and error.retry_after_s is not None:
        return retry_after_headers(error.retry_after_s)
    return {}


def _busy_headers(error: errors.BusyError) -> dict[str, str]:
    headers = retry_after_headers(error.retry_after_s)
    if error.slots_limit is not None:
        reset_s = error.slots_reset_s or _whole_seconds(error.retry_after_s)
        headers |= slot_headers(error.slots_limit, error.slots_remaining or 0, reset_s=reset_s)
    return headers


def _final_headers(status: int) -> dict[str, str]:
    is_final = status // 100 == 4 and status not in _RETRYABLE_STATUSES  # noqa: PLR2004  (the 4xx class)
    return {"x-should-retry": "false"} if is_final else {}
