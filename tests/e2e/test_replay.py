"""A coding session, replayed: every answer is the one that a server gives which reuses nothing."""

from pathlib import Path

import pytest

from memra.cli_bench.agents.chat_stream import Endpoint
from memra.cli_bench.agents.coding_session import SessionPlan, make_session
from memra.cli_bench.agents.prompt_tokens import FileTokens
from memra.cli_bench.agents.replay import Replay, ReplayTarget, differing_turns
from memra.cli_bench.agents.replay_report import digests_json, render, sum_up
from tests.e2e.server_process import Start

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(900)]

PLAN = SessionPlan(main_model="small", other_model="coder", scale=0.06, num_turns=14)


def test_answers_are_those_of_a_cold_server(start: Start, smollm2_path: Path, qwen_path: Path):
    server = start("-m", f"small={smollm2_path}", "-m", f"coder={qwen_path}")
    endpoint = Endpoint.parse(server.url)
    tokens = {"small": FileTokens(smollm2_path), "coder": FileTokens(qwen_path)}
    turns = make_session(PLAN)
    cold = Replay(turns, ReplayTarget(endpoint, {}, tokens, is_cold=True)).run(lambda _: None)
    warm = Replay(turns, ReplayTarget(endpoint, {}, tokens)).run(lambda _: None)
    for results in (cold, warm):
        assert not any(result.answer.is_failed for result in results), render(results)
        assert all(total.num_miscounted == 0 for total in sum_up(results)), render(results)
    assert all(result.num_cached in (0, None) for result in cold), render(cold)
    assert differing_turns(warm, digests_json(cold)["turns"]) == []
