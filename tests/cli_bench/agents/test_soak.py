from typing import Any

import pytest

from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.load_report import render_soak, soak_json
from memra.cli_bench.agents.random_load import LoadMix, RandomLoad
from memra.cli_bench.agents.server_gauges import num_pages_lost, wait_until_idle
from memra.cli_bench.agents.soak import Sample, Soak, SoakLimits, SoakReport, judge, slope_of
from memra.errors import MeasurementError
from tests.cli_bench.agents.chat_server import chat_server, chunk, usage

MIB = 1 << 20


def _report(*, growth_mib: float = 0.0, last_p99: float = 5.0, **fields: Any) -> SoakReport:
    samples = [
        Sample(2.0 * at, int((500 + growth_mib * at / 90) * MIB), last_p99 if at >= 60 else 5.0) for at in range(90)
    ]
    return SoakReport(samples=samples, **fields)


def _broken(report: SoakReport) -> list[str]:
    return [verdict.what for verdict in judge(report, SoakLimits()) if not verdict.is_good]


def test_a_flat_run_is_good():
    assert _broken(_report()) == []
    assert _broken(_report(growth_mib=20)) == []


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (_report(growth_mib=200), "memory"),
        (_report(last_p99=11.0), "step p99"),
        (_report(failures=["status 500"]), "failed"),
        (_report(longest_s=130.0), "longest"),
    ],
)
def test_a_broken_limit_is_named(report: SoakReport, what: str):
    (broken,) = _broken(report)
    assert what in broken


def test_the_slope_is_that_of_the_line():
    assert slope_of([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(2.0)
    assert slope_of([(0.0, 1.0)]) == 0.0


def _run(server) -> SoakReport:
    load = RandomLoad(LoadMix(["m"], leaving_share=0.3), seed="x")
    limits = SoakLimits(idle_s=0.05)
    soak = Soak(Endpoint.parse(server.url), load, read_memory=lambda: None, num_clients=2, limits=limits)
    return soak.run(0.2, lambda _: None)


def test_clients_come_back_after_a_refusal_and_the_rest_is_judged():
    with chat_server(lambda _: [chunk("a"), chunk("b"), usage(3)]) as server:
        server.refusals = [429, 429]
        report = _run(server)
    assert report.num_refused == 2
    assert report.num_answered > 0
    assert report.is_good
    assert "BROKEN" not in render_soak(report)
    assert soak_json(report)["num_refused"] == 2


@pytest.mark.parametrize("gauges", [{"active_sessions": 1}, {"queued_requests": 2}, {"kv_pages_free": 3}])
def test_what_stays_behind_breaks_a_limit(gauges: dict[str, int]):
    with chat_server(lambda _: [chunk("a"), usage(3)]) as server:
        server.gauges |= gauges
        report = _run(server)
    assert not report.is_good
    assert "BROKEN" in render_soak(report)


def test_pages_that_keep_prefixes_are_not_lost():
    gauges = {"kv_pages_free": 3, "kv_pages_total": 5}
    assert num_pages_lost(gauges) == 2
    assert num_pages_lost({**gauges, "kv_pages_cached": 2}) == 0


def test_a_server_that_stays_busy_is_an_error():
    with chat_server(lambda _: []) as server:
        server.gauges |= {"queued_requests": 3}
        with pytest.raises(MeasurementError, match="0 requests are active and 3 queued"):
            wait_until_idle(Endpoint.parse(server.url), within_s=0.01)
