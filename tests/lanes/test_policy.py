import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.lanes.policy import LanePolicy, LaneVerdict, LaneView
from memra.types import Lane

DARK = [Lane.JUDGE, Lane.HARVEST]
POLICY = LanePolicy()

views = st.builds(
    LaneView,
    num_held=st.integers(0, 100),
    num_interactive=st.integers(0, 10),
    step_p99_ms=st.none() | st.floats(0, 200),
    step_age_s=st.none() | st.floats(0, 10),
)


@pytest.mark.parametrize("lane", Lane)
def test_in_an_empty_house_everybody_comes_in(lane: Lane):
    assert POLICY.may_admit(lane, LaneView()) is LaneVerdict.ADMIT


@pytest.mark.parametrize("lane", DARK)
def test_a_full_dark_lane_turns_away(lane: Lane):
    assert POLICY.may_admit(lane, LaneView(num_held=POLICY.max_sessions[lane])) is LaneVerdict.AT_CAPACITY
    assert POLICY.may_admit(lane, LaneView(num_held=POLICY.max_sessions[lane] - 1)) is LaneVerdict.ADMIT


@pytest.mark.parametrize(
    ("lane", "p99_ms", "verdict"),
    [
        (Lane.JUDGE, 49.9, LaneVerdict.ADMIT),
        (Lane.JUDGE, 50.0, LaneVerdict.OVER_SLO),
        (Lane.HARVEST, 44.9, LaneVerdict.ADMIT),
        (Lane.HARVEST, 45.0, LaneVerdict.OVER_SLO),
        (Lane.HARVEST, None, LaneVerdict.ADMIT),
    ],
)
def test_a_dark_lane_is_shed_at_its_fraction_of_the_aim(lane: Lane, p99_ms: float | None, verdict: LaneVerdict):
    assert POLICY.may_admit(lane, LaneView(num_interactive=1, step_p99_ms=p99_ms)) is verdict


@pytest.mark.parametrize(
    ("num_interactive", "step_age_s", "verdict"),
    [
        (1, 0.051, LaneVerdict.STARVED),
        (1, 0.049, LaneVerdict.ADMIT),
        (0, 0.051, LaneVerdict.ADMIT),
        (1, None, LaneVerdict.ADMIT),
    ],
)
def test_dark_lanes_are_shed_while_interactive_work_does_not_move(
    num_interactive: int, step_age_s: float | None, verdict: LaneVerdict
):
    view = LaneView(num_interactive=num_interactive, step_age_s=step_age_s)
    for lane in DARK:
        assert POLICY.may_admit(lane, view) is verdict


@given(views)
def test_interactive_requests_are_never_turned_away(view: LaneView):
    assert POLICY.may_admit(Lane.INTERACTIVE, view) in {LaneVerdict.ADMIT, LaneVerdict.WAIT}


@given(views)
def test_harvest_never_gets_in_where_judge_does_not_but_for_room(view: LaneView):
    policy = LanePolicy(max_sessions=dict.fromkeys(Lane, 1000))
    if policy.may_admit(Lane.JUDGE, view) is not LaneVerdict.ADMIT:
        assert policy.may_admit(Lane.HARVEST, view) is not LaneVerdict.ADMIT


def test_a_dark_chunk_is_what_fits_beside_the_decoding():
    for lane in DARK:
        assert POLICY.prefill_tokens(lane, decode_s=0.030, s_per_token=0.0002) == 100
        assert POLICY.prefill_tokens(lane, decode_s=0.030, s_per_token=None) == 160
        assert POLICY.prefill_tokens(lane, decode_s=0.0, s_per_token=None) == 256
        assert POLICY.prefill_tokens(lane, decode_s=0.2, s_per_token=0.0002) == 16
    assert POLICY.prefill_tokens(Lane.INTERACTIVE, decode_s=0.2, s_per_token=1.0) == 1024


@given(
    st.sampled_from(DARK),
    st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.integers(1, 1000),
    st.floats(1, 1000),
)
def test_a_dark_chunk_moves_on_and_stays_within_budget_and_aim(
    lane: Lane, decode_s: float, s_per_token: float | None, budget: int, slo_p99_ms: float
):
    policy = LanePolicy(slo_p99_ms=slo_p99_ms, prefill_budget={lane: budget})
    num_tokens = policy.prefill_tokens(lane, decode_s=decode_s, s_per_token=s_per_token)
    assert min(budget, 16) <= num_tokens <= budget
    if num_tokens > 16:
        took_s = decode_s + num_tokens * (s_per_token or 1 / 8000)
        assert took_s <= slo_p99_ms / 1000 * (1 + 1e-9)


def test_slow_steps_of_a_moment_ago_turn_nobody_away_once_interactive_work_is_done():
    view = LaneView(num_interactive=0, step_p99_ms=10_000.0, step_age_s=20.0)
    assert all(POLICY.may_admit(lane, view) is LaneVerdict.ADMIT for lane in DARK)
