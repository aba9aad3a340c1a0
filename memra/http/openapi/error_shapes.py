"""What a request that failed is answered with, as schemas.

Only described here: `memra.http.errors` and `memra.http.wire.messages_error` write the bytes. Read by the other schemas
and by `memra.http.openapi.operations`.
"""

from typing import Literal

from msgspec import Struct

ErrorType = Literal["invalid_request_error", "authentication_error", "rate_limit_error", "timeout", "cancelled"]
BudgetErrorType = Literal["insufficient_balance", "tenant_not_enrolled", "key_spend_cap_reached"]
MessagesErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "billing_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "overloaded_error",
    "api_error",
]


class ErrorObject(Struct):
    """What went wrong: a sentence that names the thing and the remedy, the kind, and the field at fault."""

    message: str
    type: ErrorType | BudgetErrorType | Literal["server_error"]
    param: str | None
    code: str | None


class ErrorBody(Struct):
    """An error, on every path but those of messages."""

    error: ErrorObject


class MessagesErrorObject(Struct):
    """What went wrong, in Anthropic's words."""

    type: MessagesErrorType
    message: str


class MessagesErrorEvent(Struct):
    """The event that ends a stream of messages that failed."""

    type: Literal["error"]
    error: MessagesErrorObject


class MessagesErrorBody(MessagesErrorEvent):
    """An error on the paths of messages."""

    request_id: str | None


class CancelRefusal(ErrorBody, kw_only=True):
    """No such request is under way."""

    id: str
    cancelled: bool
