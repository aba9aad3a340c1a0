from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.engine.step_times import StepTimes
from memra.engine.tick_plan import Demand, TickPlan

DEMANDS = st.builds(Demand, st.booleans(), st.booleans(), st.booleans(), st.booleans())


def test_without_interactive_rows_everybody_does_everything():
    shares = TickPlan().plan({"a": Demand(prefills=True), "b": Demand(prefills_dark=True)})
    assert all(share.decodes and share.prefills and share.prefills_dark for share in shares.values())
    assert not any(share.is_bounded for share in shares.values())


def test_prompts_are_bounded_as_soon_as_anybody_decodes():
    assert TickPlan().plan({"a": Demand(prefills=True), "b": Demand(decodes_dark=True)})["a"].is_bounded


def test_beside_an_interactive_row_one_prompt_is_computed_at_a_time_and_each_in_turn():
    plan, demands = TickPlan(), {name: Demand(prefills=True) for name in "abc"} | {"row": Demand(decodes=True)}
    taken = Counter(name for _ in range(30) for name, share in plan.plan(demands).items() if share.prefills)
    assert taken == {"a": 10, "b": 10, "c": 10}


def test_dark_steps_get_every_fourth_turn_beside_interactive_prompts():
    plan = TickPlan()
    demands = {"row": Demand(decodes=True, prefills=True), "bulk": Demand(decodes_dark=True)}
    turns = [plan.plan(demands) for _ in range(40)]
    assert sum(shares["bulk"].decodes for shares in turns) == 10
    assert sum(shares["row"].prefills for shares in turns) == 30


def test_dark_rows_beside_interactive_ones_of_their_model_move_on_in_every_tick():
    plan, demands = TickPlan(), {"a": Demand(decodes=True, decodes_dark=True, prefills=True)}
    assert all(plan.plan(demands)["a"].decodes for _ in range(10))


def test_a_newcomer_does_not_catch_up_for_the_time_before_it_came():
    plan = TickPlan()
    for _ in range(100):
        plan.plan({"row": Demand(decodes=True), "old": Demand(prefills=True)})
    demands = {"row": Demand(decodes=True), "old": Demand(prefills=True), "new": Demand(prefills=True)}
    taken = Counter(name for _ in range(10) for name, share in plan.plan(demands).items() if share.prefills)
    assert taken == {"old": 5, "new": 5}


@given(st.dictionaries(st.sampled_from("abc"), DEMANDS, min_size=1), st.integers(1, 30))
def test_interactive_rows_always_move_and_nobody_waits_for_ever(demands: dict[str, Demand], num_before: int):
    plan = TickPlan()
    for _ in range(num_before):
        plan.plan(demands)
    turns = [plan.plan(demands) for _ in range(25)]
    for name, demand in demands.items():
        assert all(shares[name].decodes for shares in turns) or not demand.decodes
        served: Any = [shares[name] for shares in turns]
        assert any(share.decodes for share in served) or not demand.decodes_dark
        assert any(share.prefills for share in served) or not demand.prefills
        if demand.prefills_dark and not demand.prefills:
            assert any(share.prefills_dark for share in served)
    if any(demand.decodes for demand in demands.values()):
        for shares in turns:
            optional = [
                shares[name].prefills
                + shares[name].prefills_dark
                + (shares[name].decodes and not demands[name].decodes)
                for name in demands
            ]
            assert sum(optional) <= 1


def test_a_chunk_is_as_long_as_its_measured_time_allows():
    times = StepTimes()
    assert times.rows_within(0.05) is None
    times.note_run(0.01, num_decoding=4, num_prefill_rows=0)
    times.note_run(0.11, num_decoding=4, num_prefill_rows=100)
    assert times.s_per_prefill_token == pytest.approx(0.001)
    assert times.rows_within(0.05) == pytest.approx(50, abs=1)


def test_short_chunks_say_nothing_of_the_cost_of_a_token():
    times = StepTimes()
    times.note_run(0.02, num_decoding=0, num_prefill_rows=2)
    assert times.s_per_prefill_token is None


def test_estimates_follow_what_is_measured():
    times = StepTimes()
    for _ in range(40):
        times.note_run(0.2, num_decoding=0, num_prefill_rows=100)
    for _ in range(40):
        times.note_run(0.1, num_decoding=0, num_prefill_rows=100)
        times.note_row(3.0)
    assert times.s_per_prefill_token == pytest.approx(0.001, rel=0.01)
    assert times.mean_row_s == 3.0
