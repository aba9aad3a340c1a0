"""The probes: `GET /health` and `GET /livez` (must the process be restarted?), `GET /readyz` (may work be sent here?).

They answer at once, also when the worker hangs, and need no key.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.errors import retry_after_headers
from memra.http.generation import FrontDoor
from memra.messages.lifecycle import HealthReported

RED_RETRY_AFTER_S = 2
"""When to ask a red probe again."""


def add_health_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the probes."""

    @app.get("/health")
    @app.get("/livez")
    async def liveness() -> Response:
        health = await door.house.report_health()
        green = "draining" if health.is_draining else "ok"
        return _probe(health, green if health.is_live else None, red="unhealthy")

    @app.get("/readyz")
    async def readiness() -> Response:
        health = await door.house.report_health()
        is_ready = health.is_ready and not health.is_draining
        return _probe(health, "ready" if is_ready else None, red="draining" if health.is_draining else "not_ready")


def _probe(health: HealthReported, green: str | None, *, red: str) -> Response:
    body: dict[str, Any] = {"status": green or red, "models": health.models, "worker": _worker(health)}
    if health.detail is not None and not health.is_live:
        body["detail"] = health.detail
    headers = {} if green else retry_after_headers(RED_RETRY_AFTER_S)
    status = 200 if green else 503
    return Response(msgspec.json.encode(body), status=status, headers=headers, content_type="application/json")


def _worker(health: HealthReported) -> Mapping[str, Any]:
    return {
        "phase": health.worker.phase.value,
        "beat_age_ms": round(health.beat_age_ms),
        "tick_max_ms": round(health.worker.tick_max_ms),
        "stall_threshold_ms": round(health.stall_threshold_ms),
        "generation": health.worker.generation,
    }
