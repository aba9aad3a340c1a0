"""The application of the admin listener: a token and an audit line before everything, one shape for every refusal.

Trade: routes that plugins bring are put behind this door; it has none of its own. Refuses to know what they do. Built
by the composition root, served by `memra.http.serve` on a listener of its own.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from memra.errors import DeniedError, RequestError
from memra.http.admin_audit import AuditFile
from memra.http.app import Application
from memra.http.errors import cause_of, is_unexpected, reply_to
from memra.http.plugin_routes import mount_blueprints
from memra.http.request_body import discard

MAX_BODY_BYTES = 1 << 20
"""Orders are short; whoever sends more is in the wrong place."""

_NO_ROUTE = "(none)"
_BEARER = "bearer "
_CODES = {404: "admin_not_found", 405: "admin_method_not_allowed", 413: "admin_body_too_large", 500: "admin_fault"}
_UNAUTHORISED = frozenset({401, 403})

_log = logging.getLogger("memra.http")


def build_admin_app(
    is_token: Callable[[str], bool], audit: AuditFile, blueprints: Sequence[tuple[str, Any]]
) -> QuartTrio:
    """Build the application.

    Args:
        is_token: tells whether a bearer token is the right one, in constant time.
        audit: gets a line for every call.
        blueprints: routes, each with the plugin that brings it, in words.

    Raises:
        UsageError: two plugins bring the same route.
    """
    app = Application("memra-admin", static_folder=None, template_folder=None)
    app.config["RESPONSE_TIMEOUT"] = None  # an export may take minutes
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES

    async def check_token() -> None:
        presented = _bearer_token()
        is_authorized = presented is not None and is_token(presented)
        rule = request.url_rule
        await audit.write(
            method=request.method, path=_NO_ROUTE if rule is None else rule.rule, is_authorized=is_authorized
        )
        if presented is None:
            raise DeniedError(
                "Send the admin token as `Authorization: Bearer TOKEN`.", status=401, code="admin_auth_required"
            )
        if not is_authorized:
            raise DeniedError("This is not the admin token.", status=403, code="admin_auth_forbidden")

    app.before_request(check_token)
    mount_blueprints(app, blueprints)
    app.register_error_handler(HTTPException, _on_error)
    app.register_error_handler(Exception, _on_error)
    return app


def _bearer_token() -> str | None:
    header = request.headers.get("Authorization", "")
    if header[: len(_BEARER)].lower() != _BEARER:
        return None
    return header[len(_BEARER) :].strip() or None


async def _on_error(error: Exception) -> Response:
    if is_unexpected(error):
        _log.error("%s %s of the admin listener failed", request.method, request.path, exc_info=error)
    reply = reply_to(error)
    if reply.status in _UNAUTHORISED:
        await discard(request)  # its sender must still read the refusal
    refusal = msgspec.json.decode(reply.body)["error"]
    code = refusal["code"] if isinstance(cause_of(error), RequestError) else _CODES.get(reply.status, refusal["code"])
    message = "There is no such path on the admin listener." if code == _CODES[404] else refusal["message"]
    body = {"error": {"message": message, "type": "admin_error", "param": refusal["param"], "code": code}}
    return Response(
        msgspec.json.encode(body), status=reply.status, headers=dict(reply.headers), content_type="application/json"
    )
