import pytest

from memra.cli_bench.agents.agents_bench import (
    AGENTS,
    BOTH,
    FIRST,
    GAP_P50,
    GAP_P99,
    HARVEST,
    LONG,
    RATE,
    SHARED,
    AgentsBench,
    AgentsReport,
)
from memra.cli_bench.agents.busy_agents import AgentsPlan
from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.load_report import agents_json, render_agents
from memra.cli_bench.agents.percentiles import percentile
from tests.cli_bench.agents.chat_server import ChatServer, chat_server, chunk, usage

PLAN = AgentsPlan(
    num_agents=2, num_harvest=3, system_tokens=5, turn_tokens=(2, 5), pause_s=(0.0, 0.01), warm_up_s=0.02, window_s=0.15
)


def _measure(server: ChatServer) -> AgentsReport:
    return AgentsBench(Endpoint.parse(server.url), PLAN, models=("a", "b"), rounds=1).run(lambda _: None)


@pytest.fixture
def server():
    with chat_server(lambda _: [chunk("x"), chunk("y"), chunk("z"), usage(3)]) as server:
        yield server


def test_everything_is_measured_alone_and_together(server):
    report = _measure(server)
    assert report.notes == []
    for subject, cases in ((AGENTS, (GAP_P50, GAP_P99, FIRST)), (HARVEST, (RATE,)), (BOTH, (GAP_P99, RATE))):
        for case in cases:
            assert report.load.spread(subject, case) is not None, (subject, case)
    for ratio in (report.load_ratio(GAP_P99), report.load_ratio(RATE), report.first_ratio(LONG)):
        assert ratio is not None
    assert "at most 1.25" in render_agents(report, PLAN)
    assert set(agents_json(report, PLAN)["ratios"]) == {GAP_P50, GAP_P99, FIRST, RATE, LONG, SHARED}


def test_each_kind_asks_its_model_in_its_lane(server):
    _measure(server)
    chats = [(body, headers) for body, headers in zip(server.asked, server.headers, strict=True) if "messages" in body]
    assert {(body["model"], headers.get("x-lane")) for body, headers in chats} == {("a", None), ("b", "harvest")}
    prompts = [body["prompt_ids"] for body in server.asked if "prompt_ids" in body]
    assert [len(prompt) for prompt in prompts[:2]] == [4000, 4000]
    assert prompts[0] == prompts[1]
    alike = prompts[3:]
    assert len(alike) == 8
    assert len({tuple(prompt[:1024]) for prompt in alike}) == 1
    assert len({tuple(prompt) for prompt in alike}) == 8


def test_windows_have_salts_of_their_own_and_the_known_prompt_has_one(server):
    _measure(server)
    salts = [body["cache_salt"] for body in server.asked]
    assert len(set(salts)) == 3 + 1 + 2


def test_a_refused_harvest_client_comes_back(server):
    server.refusals = []
    bench = AgentsBench(Endpoint.parse(server.url), PLAN, models=("a", "b"), rounds=1)
    steps = []

    def announce(text: str) -> None:
        steps.append(text)
        if text.startswith(HARVEST):
            server.refusals = [429]

    report = bench.run(announce)
    assert (report.num_refused, report.notes, len(steps)) == (1, [], bench.num_steps)


def test_a_failure_is_noted_and_ends_the_run(server):
    server.refusals = [500]
    report = _measure(server)
    (note,) = report.notes
    assert "status 500" in note
    assert note in render_agents(report, PLAN)


def test_a_percentile_is_a_value_that_was_measured():
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.0) == 1.0
