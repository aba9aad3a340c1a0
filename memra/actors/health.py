"""The verdict on the worker's pulse: what the health probes show.

A worker that is busy must give a sign of life within the stall threshold; an idle one need not. A server on its way
down stays live, or it would be killed over its drain. A pure function; lifecycle calls it.
"""

from memra.messages.lifecycle import HealthReported
from memra.messages.work import WorkerBeat
from memra.types import ModelName, WorkerPhase


def judge_health(
    beat: WorkerBeat, *, now: float, stall_s: float, is_draining: bool, models: tuple[ModelName, ...]
) -> HealthReported:
    """Return the state that the probes show.

    Args:
        beat: the worker's last sign of life.
        now: `time.monotonic()`.
        stall_s: a busy worker silent for longer, seconds, counts as hung.
        is_draining: the server is on its way down.
        models: names that are served.
    """
    age_s = max(0.0, now - beat.beat_at)
    detail = None if is_draining else _complaint(beat.phase, age_s=age_s, stall_s=stall_s)
    return HealthReported(
        is_live=detail is None,
        is_ready=detail is None and not is_draining,
        is_draining=is_draining,
        worker=beat,
        beat_age_ms=1000 * age_s,
        stall_threshold_ms=1000 * stall_s,
        models=tuple(models),
        detail=detail,
    )


def _complaint(phase: WorkerPhase, *, age_s: float, stall_s: float) -> str | None:
    match phase:
        case WorkerPhase.LOADING:
            return "the model worker is loading"
        case WorkerPhase.DEAD:
            return "the model worker is dead"
        case WorkerPhase.BUSY if age_s > stall_s:
            return f"the model worker has given no sign of life for {age_s:.0f} s"
        case _:
            return None
