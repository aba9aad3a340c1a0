import pytest

from memra.engine.step_statistics import StepStatistics


def test_there_is_no_percentile_before_the_first_step():
    assert StepStatistics().percentile_ms(50) is None


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 10.0), (50, 30.0), (60, 30.0), (61, 40.0), (99, 50.0), (100, 50.0)]
)
def test_a_percentile_is_the_nearest_rank_in_milliseconds(percent: float, expected: float):
    statistics = StepStatistics()
    for step_s in (0.03, 0.01, 0.05, 0.02, 0.04):
        statistics.record(step_s)
    assert statistics.percentile_ms(percent) == pytest.approx(expected, rel=1e-12)  # one float multiplication


def test_old_steps_fall_out_of_the_window():
    statistics = StepStatistics(num_steps=2)
    for step_s in (9.0, 1.0, 2.0):
        statistics.record(step_s)
    assert statistics.percentile_ms(100) == 2000.0
