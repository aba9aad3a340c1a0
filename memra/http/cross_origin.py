"""Which web pages may call this server from a browser: CORS, for exactly the origins that were named.

Without any, which is the default, nothing here does anything, and browsers keep pages away. Keys travel in headers that
the page's own code sets, so credentials of the browser's are never asked for. Refuses to know routes; registered by
`memra.http.app` (Fetch standard, CORS protocol).
"""

import re

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

EXPOSED = (
    "x-request-id",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
)
"""Headers of answers that a page may read."""

MAX_AGE_S = 600
"""How long a browser may remember a permission; Chrome remembers none for longer than two hours."""

MAX_ASKED_CHARS = 2048
"""Longest list of headers that is granted: SDKs name about 20."""

_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]+( *, *[A-Za-z0-9!#$%&'*+.^_`|~\-]+)*")


def add_cross_origin(app: QuartTrio, origins: tuple[str, ...]) -> None:
    """Let pages of these origins call every route."""
    if not origins:
        return
    allowed = frozenset(origins)

    async def answer_preflight() -> Response | None:
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            return None
        headers = _granted() if request.headers.get("Origin") in allowed else {}
        return Response(b"", status=204, headers=headers)

    async def add_headers(response: Response) -> Response:
        response.headers.add("Vary", "Origin")
        origin = request.headers.get("Origin")
        if origin in allowed:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
        return response

    app.before_request(answer_preflight)
    app.after_request(add_headers)


def _granted() -> dict[str, str]:
    asked = request.headers.get("Access-Control-Request-Headers", "")
    headers = {"Access-Control-Allow-Methods": "GET, POST, OPTIONS", "Access-Control-Max-Age": str(MAX_AGE_S)}
    # SDKs send a dozen headers of their own making, so what is asked for is granted; `*` would not cover the key's.
    if len(asked) <= MAX_ASKED_CHARS and _HEADER_NAMES.fullmatch(asked):
        headers["Access-Control-Allow-Headers"] = asked
    return headers
