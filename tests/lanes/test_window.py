import math

from hypothesis import given
from hypothesis import strategies as st

from memra.lanes.window import SampleWindow


def test_a_percentile_is_one_of_the_samples_by_nearest_rank():
    window = SampleWindow()
    for value in [40.0, 10.0, 30.0, 20.0]:
        window.add(value, now=0.0)
    asked = (1, 25, 26, 50, 75, 76, 99, 100)
    assert [window.percentile(percent, now=0.0) for percent in asked] == [10, 10, 20, 20, 30, 40, 40, 40]


def test_without_samples_there_is_no_percentile():
    window = SampleWindow(window_s=5.0)
    assert window.percentile(99, now=0.0) is None
    window.add(1.0, now=0.0)
    assert window.percentile(99, now=5.0) == 1.0
    assert window.percentile(99, now=5.1) is None
    assert len(window) == 0


def test_beyond_the_bound_the_oldest_go_first():
    window = SampleWindow(max_samples=3)
    for value in (9.0, 1.0, 2.0, 3.0):
        window.add(value, now=0.0)
    assert (len(window), window.percentile(100, now=0.0)) == (3, 3.0)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 100)), max_size=60),
    st.integers(1, 20),
    st.floats(0.01, 100),
)
def test_whatever_comes_the_percentile_is_that_of_the_plain_list(
    steps: list[tuple[float, float]], max_samples: int, percent: float
):
    window, kept, now = SampleWindow(window_s=10.0, max_samples=max_samples), list[tuple[float, float]](), 0.0
    for pause, value in steps:
        now += pause
        window.add(value, now=now)
        kept = [*kept, (now, value)]
        kept = [(at, sample) for at, sample in kept if at >= now - 10.0][-max_samples:]
        ordered = sorted(sample for _, sample in kept)
        assert window.percentile(percent, now=now) == ordered[math.ceil(percent / 100 * len(ordered)) - 1]
    assert len(window) == len(kept)
