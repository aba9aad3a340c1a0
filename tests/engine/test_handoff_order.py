"""The newest prefixes under the cap, whole, and in an order that rebuilds their age."""

from hypothesis import given
from hypothesis import strategies as st

from memra.engine.handoff_order import Candidate, order_for_export


def test_without_a_cap_everything_goes_oldest_first_but_parents_before_children():
    root, old, new = Candidate(None, 9, 10), Candidate(0, 3, 10), Candidate(0, 9, 10)
    other = Candidate(None, 5, 10)
    order = order_for_export([root, old, new, other], cap_bytes=None)
    assert (order.places, order.num_skipped) == ((0, 1, 3, 2), 0)


def test_under_a_cap_the_newest_go_and_the_rest_is_counted():
    candidates = [Candidate(None, age, 10) for age in (1, 4, 2, 3)]
    order = order_for_export(candidates, cap_bytes=25)
    assert (order.places, order.num_skipped) == ((3, 1), 2)


def test_an_entry_costs_what_it_follows_on_too():
    candidates = [Candidate(None, 1, 10), Candidate(0, 9, 10), Candidate(None, 5, 15)]
    assert order_for_export(candidates, cap_bytes=20).places == (0, 1)
    assert order_for_export(candidates, cap_bytes=19).places == (2,)
    assert order_for_export(candidates, cap_bytes=0).num_skipped == 3


def test_what_follows_on_an_entry_that_does_not_fit_does_not_go_either():
    candidates = [Candidate(None, 9, 100), Candidate(0, 8, 1), Candidate(1, 7, 1), Candidate(None, 6, 1)]
    assert order_for_export(candidates, cap_bytes=50).places == (3,)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 9)), max_size=30),
    st.none() | st.integers(0, 120),
)
def test_every_choice_is_whole_and_under_the_cap(drawn, cap):
    candidates = [
        Candidate(parent if parent < place else None, age, size) for place, (parent, age, size) in enumerate(drawn)
    ]
    order = order_for_export(candidates, cap_bytes=cap)
    assert len(set(order.places)) == len(order.places) == len(candidates) - order.num_skipped
    assert cap is None or sum(candidates[place].num_bytes for place in order.places) <= cap
    seen: set[int | None] = {None}
    for place in order.places:
        assert candidates[place].parent in seen
        seen.add(place)
