"""`GET /metrics`, `GET /yield/metrics`, `GET /cache/stats`: counters as JSON, of all, by lane, and of kept answers.

The first is also text for Prometheus, which asks for it by `Accept`. `GET /` says where to begin.
"""

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio
from werkzeug.datastructures import MIMEAccept

from memra.http.generation import FrontDoor
from memra.http.metrics_readers import check_metrics_reader
from memra.http.wire.prometheus import CONTENT_TYPE, exposition
from memra.telemetry import names

_JSON = "application/json"
_TEXTS = ("text/plain", "application/openmetrics-text")
"""What a scraper asks for; it reads the first also where it prefers the second."""

POINTER = "This is memra, an OpenAI-compatible server: its API is under /v1, and GET /v1/models lists the models.\n"


def add_metrics_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the metrics and the pointer."""

    @app.get("/metrics")
    async def metrics() -> Response:
        await check_metrics_reader(door, request.headers)
        counted = {**await door.house.report_metrics(), names.METRIC_IGNORED_FIELDS: door.ignored_fields.counts}
        headers = {"Vary": "Accept"}
        if _wants_text(request.accept_mimetypes):
            text = exposition(counted, await door.house.report_lanes())
            return Response(text, headers=headers, content_type=CONTENT_TYPE)
        return Response(msgspec.json.encode(counted), headers=headers, content_type=_JSON)

    @app.get("/cache/stats")
    async def cache_stats() -> Response:
        await check_metrics_reader(door, request.headers)
        return Response(msgspec.json.encode(await door.house.report_caches()), content_type="application/json")

    @app.get("/yield/metrics")
    async def yield_metrics() -> Response:
        await check_metrics_reader(door, request.headers)
        return Response(msgspec.json.encode(await door.house.report_lanes()), content_type="application/json")

    @app.get("/")
    async def pointer() -> Response:
        return Response(POINTER, content_type="text/plain; charset=utf-8")


def _wants_text(accepted: MIMEAccept) -> bool:
    """Tell whether a scraper asks; whoever takes anything, or names neither, gets JSON."""
    of_text = max((quality for name, quality in accepted if name.partition(";")[0].strip() in _TEXTS), default=0)
    return of_text > accepted[_JSON]
