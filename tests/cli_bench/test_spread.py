import pytest

from memra.cli_bench.spread import Measurements, Spread, geometric_mean, measure_in_turns


def test_a_spread_is_the_median_between_lowest_and_highest():
    assert Spread.of([5.0, 1.0, 3.0, 9.0]) == Spread(4.0, 1.0, 9.0)


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one():
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)


def test_subjects_take_turns_case_by_case_and_the_first_round_is_not_counted():
    calls, values = [], iter(range(100))

    def measure(subject: str, case: str) -> float:
        calls.append(subject + case)
        return float(next(values))

    found = measure_in_turns(["a", "b"], ["x", "y"], rounds=2, measure=measure, announce=lambda _: None)
    assert calls == ["ax", "bx", "ay", "by"] * 3
    assert found.values == {("a", "x"): [4, 8], ("b", "x"): [5, 9], ("a", "y"): [6, 10], ("b", "y"): [7, 11]}


def test_what_failed_once_is_not_tried_again_and_leaves_a_hole():
    calls = []

    def measure(subject: str, case: str) -> float | None:
        calls.append(subject)
        return None if subject == "b" else 2.0

    found = measure_in_turns(["a", "b"], ["x"], rounds=2, measure=measure, announce=lambda _: None)
    assert calls.count("b") == 1
    assert found.spread("b", "x") is None
    assert found.ratio("a", "b", case="x") is None


def test_rounds_and_steps_are_announced():
    said, begun = [], []
    measure_in_turns(["a"], ["x"], rounds=1, measure=lambda *_: 1.0, announce=said.append, begin_round=begun.append)
    assert said == ["x, a, warming up", "x, a, round 1/1"]
    assert begun == [0, 1]


def test_a_ratio_is_taken_within_a_round_before_the_median():
    found = Measurements()
    for mine, theirs in ((10.0, 5.0), (100.0, 20.0), (6.0, 6.0)):
        found.add("mine", "x", mine)
        found.add("theirs", "x", theirs)
    assert found.ratio("mine", "theirs", case="x") == Spread(2.0, 1.0, 5.0)


def test_a_round_without_one_of_the_two_gives_no_ratio():
    found = Measurements()
    found.add("mine", "x", None)
    found.add("mine", "x", 6.0)
    found.add("theirs", "x", 1.0)
    found.add("theirs", "x", 2.0)
    assert found.ratio("mine", "theirs", case="x") == Spread(3.0, 3.0, 3.0)
