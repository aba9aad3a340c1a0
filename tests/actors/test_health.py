from memra.actors.health import judge_health
from memra.messages.work import WorkerBeat
from memra.types import ModelName, WorkerPhase

VERDICTS = [
    # phase, age in seconds, draining: live, ready
    (WorkerPhase.LOADING, 0, False, False, False),
    (WorkerPhase.IDLE, 1e6, False, True, True),
    (WorkerPhase.BUSY, 119, False, True, True),
    (WorkerPhase.BUSY, 121, False, False, False),
    (WorkerPhase.DEAD, 0, False, False, False),
    (WorkerPhase.IDLE, 0, True, True, False),
    (WorkerPhase.BUSY, 121, True, True, False),
]


def test_the_verdict_follows_phase_age_and_drain():
    for phase, age_s, is_draining, is_live, is_ready in VERDICTS:
        beat = WorkerBeat(phase, beat_at=50.0, tick_max_ms=1.0, generation=0)
        health = judge_health(
            beat, now=50.0 + age_s, stall_s=120, is_draining=is_draining, models=(ModelName("a"), ModelName("b"))
        )
        assert (health.is_live, health.is_ready, health.is_draining) == (is_live, is_ready, is_draining), phase
        assert (health.detail is None) == is_live
        assert health.beat_age_ms == 1000 * age_s
        assert health.stall_threshold_ms == 120_000
        assert health.models == ("a", "b")
