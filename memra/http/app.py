"""The web application: all routes, and one handler for everything that goes wrong in them.

Refuses to know actors: the house is an interface. Built by the composition root, served by `memra.http.serve`.
"""

import logging
import time

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, RequestHeaderFieldsTooLarge

from memra.actors.contract import House
from memra.http.cross_origin import add_cross_origin
from memra.http.errors import is_unexpected, reply_to
from memra.http.exchange import ExchangeConnection, current_exchange
from memra.http.generation import FrontDoor
from memra.http.protocols import MAX_HEAD_BYTES
from memra.http.request_body import discard
from memra.http.request_headers import MAX_HEADERS
from memra.http.routes.auth import add_auth_routes
from memra.http.routes.cancel import add_cancel_routes
from memra.http.routes.chat import add_chat_routes
from memra.http.routes.completions import add_completion_routes
from memra.http.routes.embeddings import add_embedding_routes
from memra.http.routes.health import add_health_routes
from memra.http.routes.messages import add_messages_routes
from memra.http.routes.metrics import add_metrics_routes
from memra.http.routes.models import add_model_routes
from memra.http.routes.openapi import add_openapi_routes
from memra.http.routes.rerank import add_rerank_routes
from memra.http.routes.responses import add_responses_routes
from memra.http.routes.tokens import add_token_routes
from memra.http.wire.messages_error import messages_reply, speaks_messages
from memra.settings import HttpSettings
from memra.types import RequestId

NO_CONTENT = 204

_BEFORE_ROUTES = frozenset({404, 405, 431})
"""Refusals by which nobody has looked at the body."""

_log = logging.getLogger("memra.http")


class Application(QuartTrio):
    """QuartTrio with the repaired end of an answer."""

    asgi_http_class = ExchangeConnection


def build_app(house: House, settings: HttpSettings, *, fingerprint: str, has_keys: bool) -> QuartTrio:
    """Build the application.

    Args:
        house: the running server behind it.
        settings: bounds, and the shape of `/v1/completions`.
        fingerprint: identifies the build; sent as `system_fingerprint`.
        has_keys: whether clients need an API key; decides the shape of `/v1/completions` where no setting does.

    Returns:
        An ASGI application; more blueprints may be registered on it until it is served.
    """
    app = Application("memra", static_folder=None, template_folder=None)
    # quart's default of 60 s cuts a longer stream in the middle without a word in the log.
    app.config["RESPONSE_TIMEOUT"] = None
    # Bodies are bounded, and timed, where they are read: quart's refusal resets the connection under its sender.
    app.config["MAX_CONTENT_LENGTH"] = None
    door = FrontDoor(
        house=house,
        settings=settings,
        fingerprint=fingerprint,
        is_openai_completion=has_keys if settings.compat is None else settings.compat == "openai",
        created=int(time.time()),
    )
    for add_routes in (
        add_chat_routes,
        add_completion_routes,
        add_responses_routes,
        add_messages_routes,
        add_embedding_routes,
        add_rerank_routes,
        add_token_routes,
        add_cancel_routes,
        add_auth_routes,
        add_model_routes,
        add_health_routes,
        add_metrics_routes,
        add_openapi_routes,
    ):
        add_routes(app, door)
    app.before_request(_check_head)
    add_cross_origin(app, settings.cors_origins)
    app.register_error_handler(HTTPException, _on_error)
    app.register_error_handler(Exception, _on_error)
    app.after_request(_complete_head)
    return app


async def _check_head() -> None:
    headers = list(request.scope["headers"])
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
        raise RequestHeaderFieldsTooLarge(
            f"The head of the request has more than {MAX_HEADERS} headers, or more than {MAX_HEAD_BYTES} bytes of them."
        )


async def _on_error(error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.code in _BEFORE_ROUTES:
        # Its sender must still read the refusal.
        await discard(request)
    if is_unexpected(error):
        _log.error("%s %s failed, request %s", request.method, request.path, _request_id(), exc_info=error)
    visit = current_exchange().visit
    if visit is not None:
        await visit.note_refusal(RequestId(_request_id()), error)
    reply = reply_to(error)
    if speaks_messages(request.path):
        reply = messages_reply(reply, _request_id())
    return Response(reply.body, status=reply.status, headers=dict(reply.headers), content_type="application/json")


async def _complete_head(response: Response) -> Response:
    if response.status_code == NO_CONTENT:
        # RFC 9110 forbids the first there, and the second would be about nothing.
        response.headers.remove("content-length")
        response.headers.remove("content-type")
    request_id = _request_id()
    response.headers["x-request-id"] = request_id
    if speaks_messages(request.path):
        response.headers["request-id"] = request_id
    return response


def _request_id() -> str:
    return current_exchange().request_id
