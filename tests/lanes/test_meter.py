from dataclasses import asdict

from memra.lanes.meter import LaneMeter
from memra.lanes.metrics import LaneMetrics
from memra.types import Lane


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fresh_meter_reports_nothing():
    assert LaneMeter().report() == LaneMetrics()
    assert LaneMetrics().admitted == dict.fromkeys(Lane, 0)


def test_every_event_is_counted_in_its_lane():
    meter = LaneMeter()
    meter.admitted(Lane.INTERACTIVE)
    meter.admitted(Lane.HARVEST)
    meter.completed(Lane.HARVEST)
    meter.shed(Lane.JUDGE)
    meter.generated(Lane.HARVEST, 5)
    meter.generated(Lane.HARVEST, 2)
    meter.note_batch(7)
    report = meter.report()
    assert report.admitted == {Lane.INTERACTIVE: 1, Lane.JUDGE: 0, Lane.HARVEST: 1}
    assert report.completed == {Lane.INTERACTIVE: 0, Lane.JUDGE: 0, Lane.HARVEST: 1}
    assert report.shed == {Lane.INTERACTIVE: 0, Lane.JUDGE: 1, Lane.HARVEST: 0}
    assert report.tokens_out == {Lane.INTERACTIVE: 0, Lane.JUDGE: 0, Lane.HARVEST: 7}
    assert report.batch_size_last == 7


def test_a_report_does_not_change_afterwards():
    meter = LaneMeter()
    report = meter.report()
    meter.admitted(Lane.JUDGE)
    assert report == LaneMetrics()
    assert asdict(report)["admitted"] == dict.fromkeys(Lane, 0)


def test_steps_are_remembered_for_the_window_and_the_last_one_for_ever():
    clock = Clock()
    meter = LaneMeter(clock=clock, window_s=30.0)
    for milliseconds in range(1, 101):
        meter.record_step(milliseconds / 1000)
    report = meter.report()
    assert report.step_p50_ms is not None
    assert report.step_p99_ms is not None
    assert (round(report.step_p50_ms), round(report.step_p99_ms)) == (50, 99)
    assert report.interactive_step_at == 100.0
    clock.now += 31.0
    report = meter.report()
    assert (report.step_p50_ms, report.step_p99_ms, report.interactive_step_at) == (None, None, 100.0)
