"""`GET /metrics`, `GET /yield/metrics`, `GET /cache/stats`: counters as JSON, of all, by lane, and of kept answers.

`GET /` says where to begin.
"""

import msgspec
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor

POINTER = "This is memra, an OpenAI-compatible server: its API is under /v1, and GET /v1/models lists the models.\n"


def add_metrics_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the metrics and the pointer."""

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(msgspec.json.encode(await door.house.report_metrics()), content_type="application/json")

    @app.get("/cache/stats")
    async def cache_stats() -> Response:
        return Response(msgspec.json.encode(await door.house.report_caches()), content_type="application/json")

    @app.get("/yield/metrics")
    async def yield_metrics() -> Response:
        return Response(msgspec.json.encode(await door.house.report_lanes()), content_type="application/json")

    @app.get("/")
    async def pointer() -> Response:
        return Response(POINTER, content_type="text/plain; charset=utf-8")
