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
from memra.messages.lifecycle import GpuReported, HealthReported
from memra.types import WorkerPhase

RED_RETRY_AFTER_S = 2
"""When to ask a red probe again."""


def add_health_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the probes."""

    @app.get("/health")
    @app.get("/livez")
    async def liveness() -> Response:
        health = await door.house.report_health()
        green = "draining" if health.is_draining else "ok"
        return _probe(health, green if health.is_live else None, red="unhealthy", retry_after_s=RED_RETRY_AFTER_S)

    @app.get("/readyz")
    async def readiness() -> Response:
        health = await door.house.report_health()
        is_ready = health.is_ready and not health.is_draining
        return _probe(
            health,
            "ready" if is_ready else None,
            red="draining" if health.is_draining else "not_ready",
            retry_after_s=health.drain_s if health.is_draining else RED_RETRY_AFTER_S,
        )


def _probe(health: HealthReported, green: str | None, *, red: str, retry_after_s: float) -> Response:
    body: dict[str, Any] = {"status": green or red, "models": health.models, "worker": _worker(health)}
    if health.detail is not None and not health.is_live:
        body["detail"] = health.detail
    headers = {} if green else retry_after_headers(retry_after_s)
    status = 200 if green else 503
    return Response(msgspec.json.encode(body), status=status, headers=headers, content_type="application/json")


def _worker(health: HealthReported) -> Mapping[str, Any]:
    beat, prefill, gpu = health.worker, health.worker.prefill, health.gpu
    return {
        "phase": beat.phase.value,
        "beat_age_ms": round(health.beat_age_ms),
        "tick_max_ms": round(beat.tick_max_ms),
        "stall_threshold_ms": round(health.stall_threshold_ms),
        "generation": beat.generation,
        "xid_warnings": 0 if gpu is None else gpu.xid_warnings,
        "forward_progress_age_ms": _whole(health.forward_progress_age_ms),
        "prime_progress": None
        if prefill is None
        else {"rows": prefill.num_rows, "chunks": prefill.num_chunks, "age_ms": _whole(health.prefill_age_ms)},
        "gpu_probe": None if gpu is None else _probe_facts(gpu),
        "scheduler_phase": _scheduler_phase(health),
        "idle_for_ms": _whole(health.idle_for_ms),
    }


def _probe_facts(gpu: GpuReported) -> Mapping[str, Any]:
    return {
        "state": gpu.probe_state.value,
        "age_ms": _whole(gpu.probe_age_ms),
        "took_ms": _whole(gpu.probe_took_ms),
        "hangs": gpu.num_probe_hangs,
    }


def _scheduler_phase(health: HealthReported) -> str:
    """Say what a busy worker is busy with; the phase itself of one that is not."""
    if health.worker.phase is not WorkerPhase.BUSY:
        return health.worker.phase.value
    return "decode" if health.worker.prefill is None else "prefill"


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds)
