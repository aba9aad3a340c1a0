from typing import Any

import pytest

from memra.actors.gpu_faults import GpuRecord
from memra.actors.health import HealthRules, judge_health
from memra.actors.pulse import WorkerPulse
from memra.messages.lifecycle import GpuReported
from memra.messages.work import PrefillProgress, WorkerBeat
from memra.settings import LifecycleSettings
from memra.types import ModelName, WorkerPhase

RULES = HealthRules(stall_s=120, drain_s=30, models=(ModelName("a"), ModelName("b")))
VERDICTS = [
    # phase, age in seconds, draining: live, ready
    (WorkerPhase.LOADING, 0, False, False, False),
    (WorkerPhase.WARMING, 0, False, False, False),
    (WorkerPhase.IDLE, 1e6, False, True, True),
    (WorkerPhase.BUSY, 119, False, True, True),
    (WorkerPhase.BUSY, 120, False, True, True),
    (WorkerPhase.BUSY, 121, False, False, False),
    (WorkerPhase.DEAD, 0, False, False, False),
    (WorkerPhase.IDLE, 0, True, True, False),
    (WorkerPhase.BUSY, 121, True, True, False),
]


@pytest.mark.parametrize("row", VERDICTS)
def test_the_verdict_follows_phase_age_and_drain(row: tuple[WorkerPhase, float, bool, bool, bool]):
    phase, age_s, is_draining, is_live, is_ready = row
    beat = WorkerBeat(phase, beat_at=50.0, tick_max_ms=1.0, generation=0)
    health = judge_health(beat, RULES, now=50.0 + age_s, is_draining=is_draining)
    assert (health.is_live, health.is_ready, health.is_draining) == (is_live, is_ready, is_draining)
    assert (health.detail is None) == is_live
    assert health.beat_age_ms == 1000 * age_s
    assert health.stall_threshold_ms == 120_000
    assert health.models == ("a", "b")


def test_progress_inside_a_long_step_keeps_a_busy_worker_live():
    beat = WorkerBeat(WorkerPhase.BUSY, beat_at=0.0, tick_max_ms=1.0, generation=0, progress_at=500.0)
    beat_and_prefill = WorkerBeat(
        WorkerPhase.BUSY, 0.0, 1.0, 0, progress_at=500.0, prefill=PrefillProgress(512, 2, progress_at=499.0)
    )
    for worker in (beat, beat_and_prefill):
        assert judge_health(worker, RULES, now=620.0, is_draining=False).is_live
        hung = judge_health(worker, RULES, now=621.0, is_draining=False)
        assert (hung.is_live, hung.is_ready) == (False, False)
        assert "no sign of life for 121 s" in (hung.detail or "")
        assert (hung.beat_age_ms, hung.forward_progress_age_ms) == (621_000, 121_000)
    assert hung.prefill_age_ms == 122_000


def test_a_gpu_fault_is_red_at_once_in_every_phase_but_a_drain():
    gpu = GpuReported(fault="GPU 0000:3b:00 reported Xid 79")
    for phase in WorkerPhase:
        beat = WorkerBeat(phase, beat_at=0.0, tick_max_ms=0.0, generation=0)
        health = judge_health(beat, RULES, now=0.0, is_draining=False, gpu=gpu)
        assert (health.is_live, health.is_ready) == (False, False)
        assert health.detail == "GPU 0000:3b:00 reported Xid 79"
        assert judge_health(beat, RULES, now=0.0, is_draining=True, gpu=gpu).is_live


def test_xids_that_are_no_fault_change_no_verdict():
    beat = WorkerBeat(WorkerPhase.IDLE, beat_at=0.0, tick_max_ms=0.0, generation=0)
    assert judge_health(beat, RULES, now=0.0, is_draining=False, gpu=GpuReported(xid_warnings=9)).is_ready


def test_the_death_of_a_worker_is_told_with_its_cause():
    pulse = WorkerPulse()
    pulse.die("RuntimeError: device lost")
    health = judge_health(pulse.read(), RULES, now=pulse.beat_at, is_draining=False)
    assert health.detail == "the model worker died: RuntimeError: device lost"
    pulse.begin(1)
    assert (pulse.read().loss, pulse.read().phase) == (None, WorkerPhase.LOADING)


def test_the_pulse_adds_up_a_prefill_until_a_step_without_one():
    pulse = WorkerPulse()
    assert pulse.read().prefill is None
    pulse.note_progress(1.0, 256)
    pulse.note_progress(2.0, 0)
    pulse.note_tick(0.1)
    pulse.note_progress(3.0, 44)
    assert pulse.read().prefill == PrefillProgress(num_rows=300, num_chunks=2, progress_at=3.0)
    pulse.note_tick(0.1)
    assert pulse.read().prefill is not None
    pulse.note_progress(4.0, 0)
    pulse.note_tick(0.1)
    assert pulse.read().prefill is None
    assert pulse.read().progress_at == 4.0


def test_the_pulse_knows_since_when_it_is_idle():
    pulse = WorkerPulse()
    pulse.beat(WorkerPhase.IDLE)
    since = pulse.read().idle_since
    pulse.note_progress(1.0, 5)
    pulse.beat(WorkerPhase.IDLE)
    assert since is not None
    assert pulse.read().idle_since == since
    pulse.beat(WorkerPhase.BUSY)
    assert pulse.read().idle_since is None
    pulse.beat(WorkerPhase.IDLE)
    assert pulse.read().prefill is None


async def test_a_long_prefill_that_comes_on_stays_live_and_one_that_does_not_is_red(kit: Any):
    settings = LifecycleSettings(stall_s=1)
    async with (
        kit.open_house(make_engine=lambda: kit.Engine(is_manual=True), settings=settings) as running,
        running.house.open_reply(kit.request()),
    ):
        await kit.eventually(running.engine.entered_step.is_set)
        running.pulse.beat_at -= 50  # as if the step had begun long ago
        running.pulse.note_progress(running.pulse.beat_at + 50, 256)
        health = await running.house.report_health()
        assert health.is_live
        assert health.beat_age_ms > 50_000
        assert health.forward_progress_age_ms < 1000
        running.pulse.progress_at -= 2
        health = await running.house.report_health()
        assert not health.is_live
        running.engine.release()


async def test_a_full_queue_does_not_make_the_house_unready(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        replies = [running.house.open_reply(kit.request(f"r{number}", max_new_tokens=1)) for number in range(64)]
        for reply in replies:
            await reply.__aenter__()
        assert running.replies.num_open == 64
        assert (await running.house.report_health()).is_ready
        for reply in replies:
            await reply.__aexit__(None, None, None)
        running.engine.release()
        await running.is_empty()


async def test_a_gpu_fault_outlives_the_worker(kit: Any):
    gpu = GpuRecord()
    async with kit.open_house(gpu=gpu) as running:
        assert (await running.house.report_health()).is_ready
        gpu.note_line("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        running.engine.step_error = RuntimeError("device lost")
        assert (await kit.read(running.house, kit.request())).text == "abcde"
        health = await running.house.report_health()
        assert health.worker.generation == 1
        assert (health.is_live, health.is_ready) == (False, False)
        assert "Xid 79" in (health.detail or "")
