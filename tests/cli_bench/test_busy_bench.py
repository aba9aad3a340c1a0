from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from memra.cli_bench.busy_bench import ALONE, BUSY, MEAN, MEDIAN, BusyBench, case_of
from memra.errors import MeasurementError


class Machine:
    """Steps take three times as long while somebody is busy."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.is_busy = False

    @contextmanager
    def keep_busy(self) -> Iterator[None]:
        self.is_busy = True
        yield
        self.is_busy = False

    def step(self) -> list[float]:
        self.log.append("busy" if self.is_busy else "alone")
        return [3.0, 3.0, 9.0] if self.is_busy else [1.0, 1.0, 4.0]

    def fail(self) -> list[float]:
        raise MeasurementError("llama-cpp: was ended by SIGSEGV")


def test_both_take_turns_and_the_ratio_is_taken_within_a_round():
    machine, said = Machine(), []
    bench = BusyBench({"cpu": machine.step}, keep_busy=machine.keep_busy, rounds=2, num_steps=3)
    report = bench.run(said.append)
    assert machine.log == ["alone", "busy"] * 3
    assert len(said) == bench.num_announced
    assert report.seconds.values[ALONE, case_of("cpu", MEDIAN)] == [1.0, 1.0]
    assert report.seconds.values[BUSY, case_of("cpu", MEAN)] == [5.0, 5.0]
    median, mean = report.ratio("cpu", MEDIAN), report.ratio("cpu", MEAN)
    assert median is not None
    assert mean is not None
    assert (median.median, mean.median) == (3.0, 2.5)


def test_an_engine_that_fails_is_noted_once_and_the_others_go_on():
    machine = Machine()
    engines = {"llama-cpp": machine.fail, "cpu": machine.step}
    report = BusyBench(engines, keep_busy=machine.keep_busy, rounds=2, num_steps=3).run(lambda _: None)
    assert report.notes == ["beside a busy process: llama-cpp: llama-cpp: was ended by SIGSEGV"]
    assert report.ratio("llama-cpp", MEDIAN) is None
    assert report.ratio("cpu", MEDIAN) is not None


def test_nobody_is_left_busy_when_a_step_fails():
    machine = Machine()

    def fail_beside() -> list[float]:
        if machine.is_busy:
            raise MeasurementError("dead")
        return [1.0]

    ended = []

    @contextmanager
    def keep_busy() -> Iterator[None]:
        machine.is_busy = True
        try:
            yield
        finally:
            ended.append(True)

    report = BusyBench({"cpu": fail_beside}, keep_busy=keep_busy, rounds=3, num_steps=1).run(lambda _: None)
    assert ended == [True]
    assert report.seconds.values == {}


@pytest.mark.parametrize("kind", [MEDIAN, MEAN])
def test_a_round_that_warms_up_is_not_counted(kind: str):
    machine = Machine()
    report = BusyBench({"cpu": machine.step}, keep_busy=machine.keep_busy, rounds=1, num_steps=3).run(lambda _: None)
    assert len(report.seconds.values[ALONE, case_of("cpu", kind)]) == 1
