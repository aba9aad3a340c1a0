"""Whatever runs beside a request, its tokens are those that it gets alone on a server that was just started."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from memra.cli_bench.agents.random_load import LoadMix
from tests.e2e.exactness import NATIVE, ask_alone, ask_together, assert_same_tokens, draw_requests
from tests.e2e.server_process import Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(1200)]

SHORT = LoadMix(["small", "coder"], beginning_tokens=(20, 160), own_tokens=(4, 30), answer_tokens=(1, 16))
LONG = LoadMix(["small", "coder"], beginning_tokens=(30, 200), own_tokens=(4, 30), answer_tokens=(1, 20))


@pytest.fixture(scope="module")
def models(smollm2_path: Path, qwen_path: Path) -> Sequence[str]:
    return ["-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}"]


SHORT_OF_MEMORY = {
    "MEMRA_KV_MB": "48",
    "MEMRA_PREFIX_CACHE_MB": "12",
    "MEMRA_KV_HOST_MB": "64",
    "MEMRA_CTX": "64",
    "MEMRA_SLO_P99_MS": "1000",
    "MEMRA_LANE_MAX_HARVEST": "16",
}
"""Prefixes are evicted and come back, and harvest rows give way."""


@pytest.mark.parametrize(("mix", "count"), [(SHORT, 12), pytest.param(LONG, 200, marks=pytest.mark.slow)])
def test_tokens_are_those_of_each_request_alone(start: Start, models: Sequence[str], mix: LoadMix, count: int):
    requests = draw_requests(mix, count, seed=f"exactness {count}")
    busy = start(*models, environ=NATIVE | SHORT_OF_MEMORY)
    together = ask_together(busy.url, requests)
    busy.wait_for_metrics(active_sessions=0, queued_requests=0)
    metrics = busy.metrics()
    busy.end()
    alone = ask_alone(start(*models, environ=NATIVE).url, requests)
    assert_same_tokens(requests, together, alone)
    assert sum(len(answer.token_ids) for answer in together) > count
    assert metrics["prefix_cache_hits"] > 0
    if mix is LONG:
        assert metrics["prefix_host_promotions"] > 0
