"""The counters for a scraper: by `Accept`, in the text format that Prometheus reads."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from memra.actors.metrics import lane_metrics, public_metrics
from memra.http.wire.prometheus import COUNTERS, exposition
from memra.lanes.metrics import zero_counts
from memra.messages.admission import AdmissionsReported
from memra.messages.work import PrefixReported, WorkReported

Start = Callable[..., Awaitable[Any]]
SCRAPER = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
LINE = re.compile(r'(memra_[a-z0-9_]+)(?:\{[a-z_]+="(?:[^"\\\n]|\\.)*"\})? (-?[0-9.e+-]+)')


@pytest.mark.parametrize(
    ("accept", "is_text"),
    [
        (SCRAPER, True),
        ("text/plain", True),
        ("application/openmetrics-text; version=1.0.0", True),
        ("text/plain;q=0.5, application/json", False),
        ("application/json", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("nonsense", False),
    ],
)
async def test_a_scraper_gets_text_and_everybody_else_json(start: Start, accept: str, *, is_text: bool):
    server = await start()
    await server.chat(frobnicate=1)
    reply = await server.get("/metrics", accept=accept)
    assert reply.headers["vary"] == "Accept"
    if not is_text:
        assert reply.json() == {"admitted": 1, "ignored_request_fields": {"frobnicate": 1}}
        return
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.text.splitlines() == [
        "# TYPE memra_requests_admitted_total counter",
        "memra_requests_admitted_total 1",
        "# TYPE memra_ignored_request_fields_total counter",
        'memra_ignored_request_fields_total{field="frobnicate"} 1',
        "# TYPE memra_batch_size_last gauge",
        "memra_batch_size_last 1",
    ]


async def test_without_a_wish_it_is_json(start: Start):
    server = await start()
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        client.headers.pop("accept")
        assert (await client.get("/metrics")).json()["admitted"] == 0


def everything() -> tuple[dict[str, Any], dict[str, Any]]:
    prefix = PrefixReported(lcp_edges=(0, 64), lcp_counts=(1, 2))
    work, admissions = WorkReported(prefix=prefix), AdmissionsReported(num_inflight=0, num_shed=zero_counts())
    return public_metrics(work, admissions, num_respawns=2), lane_metrics(work, admissions)


def test_everything_that_is_counted_is_in_the_text_form():
    metrics, lanes = everything()
    metrics = {name: 1.5 if value is None else value for name, value in metrics.items()}
    text = exposition(metrics, lanes)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# TYPE ") or LINE.fullmatch(line), line
    seen = {match[1] for line in text.splitlines() if (match := LINE.fullmatch(line))}
    known_as = {
        "lcp_histogram": "lcp",
        "admitted": "requests_admitted",
        "completed": "requests_completed",
        "step_p50_ms": "step_latency_seconds",
        "step_p99_ms": "step_latency_seconds",
    }
    for name in metrics:
        stem = f"memra_{known_as.get(name, name.removesuffix('_total'))}"
        assert {stem, f"{stem}_total"} & seen, name
    assert 'memra_lane_shed_total{lane="harvest"} 0' in text
    assert "memra_worker_respawns_total 2" in text
    assert 'memra_step_latency_seconds{quantile="0.99"} 0.0015' in text
    assert 'memra_lcp_total{at_least_tokens="64"} 2' in text


def test_each_name_has_one_type_and_stands_together():
    text = exposition(*everything())
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE)
    assert len({name for name, _ in types}) == len(types)
    for name, kind in types:
        assert (kind == "counter") is name.endswith("_total")
    order = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert list(dict.fromkeys(order)) == [name for name, _ in types]


def test_what_is_not_known_yet_is_left_out():
    assert "None" not in exposition(*everything())


def test_what_grows_is_a_counter_and_what_does_not_is_none():
    metrics, _ = everything()
    gauges = set(metrics) - COUNTERS
    assert not {name for name in gauges if name.endswith(("_in", "_out", "_hits", "_misses", "_defers", "_respawns"))}


def test_labels_are_escaped():
    text = exposition({"ignored_request_fields": {'a"\\\n': 1}}, {})
    assert text.splitlines()[1] == r'memra_ignored_request_fields_total{field="a\"\\\n"} 1'
