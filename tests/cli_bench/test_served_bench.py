from typing import Any

import pytest

from memra.cli_bench.load_client import Target
from memra.cli_bench.served_bench import BARE, SERVED, ServedBench, ServedPlan, ServedReport, ServedTarget, make_prompts
from memra.cli_bench.streams import Stream
from memra.errors import MeasurementError


class FakeBare:
    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.prompts: list[list[str]] = []

    def call(self, operation: str, **arguments: Any):
        self.log.append(f"{operation} {len(arguments['texts'])}")
        self.prompts.append(arguments["texts"])
        return {"num_tokens": 100, "elapsed_s": 1.0}


class FakeClient:
    kind = "compiled"

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.seconds = {80: 1.25, 81: 5.0}
        self.requests: list[bytes] = []

    def drive(self, target: Target, requests):
        self.log.append(f"{target.port} {len(requests)}")
        self.requests += requests
        if target.port == 82:
            raise MeasurementError("connection refused")
        each = 100 // len(requests)
        return [Stream(200, True, each, (0.1, self.seconds[target.port])) for _ in requests]


def _run(*ports: int, pairs: int = 2) -> tuple[ServedReport, list[str], FakeBare, FakeClient]:
    log: list[str] = []
    bare, client = FakeBare(log), FakeClient(log)
    labels = [SERVED, "other"]
    servers = [ServedTarget(label, Target("h", port, "/v1"), "m") for label, port in zip(labels, ports, strict=False)]
    plan = ServedPlan(num_clients=(1, 4), max_new_tokens=8, pairs=pairs)
    bench = ServedBench(plan, client=client, bare=bare, servers=servers)
    said: list[str] = []
    report = bench.run(said.append)
    assert len(said) == bench.num_steps
    return report, log, bare, client


def test_bare_and_served_take_turns():
    _, log, _, _ = _run(80)
    assert log == ["generate 1", "80 1", "generate 4", "80 4"] * 3


def test_the_ratio_is_served_against_bare():
    report, _, _, _ = _run(80, 81)
    ratio = report.ratio("4 clients")
    assert ratio is not None
    assert ratio.median == pytest.approx(0.8)
    assert report.mean_ratio() == pytest.approx(0.8)
    assert report.mean_ratio(other="other") == pytest.approx(4.0)
    assert report.streams[SERVED, "1 client"].first_ms == pytest.approx(100.0)


def test_a_server_that_fails_is_noted_and_the_others_go_on():
    report, _, _, _ = _run(80, 82)
    assert report.notes == ["1 client, other: connection refused", "4 clients, other: connection refused"]
    assert report.mean_ratio() == pytest.approx(0.8)
    assert report.mean_ratio(other="other") is None


def test_both_get_the_same_prompts_and_no_two_rounds_share_one():
    _, _, bare, client = _run(80)
    prompts = [prompt for round_prompts in bare.prompts for prompt in round_prompts if len(round_prompts) == 4]
    assert len(set(prompts)) == len(prompts) == 12
    for prompt in prompts:
        assert any(prompt.encode() in request for request in client.requests)


def test_prompts_of_a_round_begin_differently():
    assert len({prompt[:4] for prompt in make_prompts(16) + make_prompts(16, round_number=1)}) == 32


def test_the_bare_rate_is_measured():
    report, _, _, _ = _run(80)
    assert report.rates.values[BARE, "1 client"] == [100.0, 100.0]
