"""The verdict on the worker's pulse and the GPU's record: what the health probes show.

A worker that is busy must give a sign of life within the stall threshold, be it a loop iteration or a run of an
executor inside a long one; an idle one need not. How much work waits does not matter. A server on its way down stays
live, or it would be killed over its drain. A pure function; lifecycle calls it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from memra.messages.lifecycle import GpuReported, HealthReported
from memra.messages.work import WorkerBeat
from memra.types import ModelName, WorkerPhase


@dataclass(frozen=True, slots=True)
class HealthRules:
    """What the verdict goes by.

    Attributes:
        stall_s: a busy worker silent for longer, seconds, counts as hung.
        drain_s: how long a drain may take, seconds.
        models: names that are served; may grow.
    """

    stall_s: float
    drain_s: float
    models: Collection[ModelName]


def judge_health(
    beat: WorkerBeat, rules: HealthRules, *, now: float, is_draining: bool, gpu: GpuReported | None = None
) -> HealthReported:
    """Return the state that the probes show.

    Args:
        beat: the worker's last sign of life.
        rules: see there.
        now: `time.monotonic()`.
        is_draining: the server is on its way down.
        gpu: None where no GPU is watched.
    """
    detail = None if is_draining else _complaint(beat, gpu, now=now, stall_s=rules.stall_s)
    return HealthReported(
        is_live=detail is None,
        is_ready=detail is None and not is_draining,
        is_draining=is_draining,
        worker=beat,
        beat_age_ms=1000 * max(0.0, now - beat.beat_at),
        stall_threshold_ms=1000 * rules.stall_s,
        models=tuple(rules.models),
        detail=detail,
        forward_progress_age_ms=_age_ms(beat.progress_at, now),
        prefill_age_ms=None if beat.prefill is None else _age_ms(beat.prefill.progress_at, now),
        idle_for_ms=_age_ms(beat.idle_since, now),
        gpu=gpu,
        drain_s=rules.drain_s,
    )


def _age_ms(since: float | None, now: float) -> float | None:
    return None if since is None else 1000 * max(0.0, now - since)


def _complaint(beat: WorkerBeat, gpu: GpuReported | None, *, now: float, stall_s: float) -> str | None:
    if gpu is not None and gpu.fault is not None:
        return gpu.fault
    silent_s = now - max(beat.beat_at, beat.progress_at or beat.beat_at)
    match beat.phase:
        case WorkerPhase.LOADING | WorkerPhase.WARMING:
            return f"the model worker is {beat.phase.value}"
        case WorkerPhase.DEAD:
            return "the model worker is dead" if beat.loss is None else f"the model worker died: {beat.loss}"
        case WorkerPhase.BUSY if silent_s > stall_s:
            return f"the model worker has given no sign of life for {silent_s:.0f} s"
        case _:
            return None
