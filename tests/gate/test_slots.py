import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.errors import BusyError, QueueFullError
from memra.gate.slots import LaneLimit, SlotTable, SlotTaken, lane_limits
from memra.types import Lane, RequestId


def test_the_limits_follow_the_settings():
    limits = lane_limits(max_interactive=2, max_judge=3, max_harvest=0)
    assert limits == {Lane.INTERACTIVE: LaneLimit(2, 8), Lane.JUDGE: LaneLimit(3), Lane.HARVEST: LaneLimit(0)}
    assert lane_limits(max_interactive=2, max_queue_depth=3)[Lane.INTERACTIVE] == LaneLimit(2, 3)


@pytest.mark.parametrize("lane", [Lane.JUDGE, Lane.HARVEST])
def test_a_background_lane_is_refused_at_its_limit(lane: Lane):
    table = SlotTable(lane_limits(max_judge=2, max_harvest=2))
    assert table.take(RequestId("a"), lane).remaining == 1
    assert table.take(RequestId("b"), lane).remaining == 0
    with pytest.raises(BusyError, match=f"{lane.value} lane is at capacity") as refused:
        table.take(RequestId("c"), lane)
    assert type(refused.value) is BusyError
    assert (table.num_held(lane), table.num_held(Lane.INTERACTIVE)) == (2, 0)
    assert refused.value.retry_after_s == 2.0
    assert (refused.value.slots_limit, refused.value.slots_remaining) == (2, 0)
    assert table.release(RequestId("a"))
    assert table.take(RequestId("c"), lane).limit == 2


def test_interactive_requests_queue_beyond_their_limit_but_not_for_ever():
    table = SlotTable(lane_limits(max_interactive=2))
    remaining = [table.take(RequestId(str(number)), Lane.INTERACTIVE).remaining for number in range(10)]
    assert remaining == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    with pytest.raises(QueueFullError, match=r"at capacity \(10 requests\)") as refused:
        table.take(RequestId("one too many"), Lane.INTERACTIVE)
    assert (refused.value.slots_limit, refused.value.slots_remaining) == (2, 0)


def test_lanes_do_not_share_their_slots():
    table = SlotTable({lane: LaneLimit(1) for lane in Lane})
    for lane in Lane:
        table.take(RequestId(lane.value), lane)
    for lane in Lane:
        with pytest.raises(BusyError):
            table.take(RequestId(f"second {lane.value}"), lane)


def test_a_slot_is_released_once():
    table = SlotTable(lane_limits())
    table.take(RequestId("a"), Lane.JUDGE)
    with pytest.raises(ValueError, match="holds a slot already"):
        table.take(RequestId("a"), Lane.HARVEST)
    assert table.release(RequestId("a"))
    assert not table.release(RequestId("a"))
    assert not table.release(RequestId("unknown"))
    table.check_integrity()


def test_the_books_are_found_wrong_when_they_are():
    table = SlotTable(lane_limits())
    table.take(RequestId("a"), Lane.JUDGE)
    table._num_held[Lane.JUDGE] = 2
    with pytest.raises(RuntimeError, match="differ from the holders"):
        table.check_integrity()


def test_a_tenants_requests_count_together_whatever_their_lane():
    table = SlotTable(lane_limits())
    assert table.take(RequestId("a"), Lane.INTERACTIVE, tenant="acme", tenant_limit=3) == SlotTaken(3, 2)
    assert table.take(RequestId("b"), Lane.JUDGE, tenant="acme", tenant_limit=3) == SlotTaken(3, 1)
    with pytest.raises(BusyError, match="acme has 2 requests under way and its key allows 2") as refused:
        table.take(RequestId("c"), Lane.HARVEST, tenant="acme", tenant_limit=2)
    assert type(refused.value) is BusyError
    assert (refused.value.slots_limit, refused.value.slots_remaining) == (2, 0)
    assert table.num_held(Lane.HARVEST) == 0
    assert table.take(RequestId("c"), Lane.HARVEST, tenant="other", tenant_limit=2) == SlotTaken(2, 1)
    table.release(RequestId("a"))
    table.take(RequestId("d"), Lane.HARVEST, tenant="acme", tenant_limit=2)
    table.check_integrity()


def test_a_tenants_limit_counts_only_where_it_is_narrower_than_the_lane():
    table = SlotTable(lane_limits(max_judge=2))
    for name in "abcd":
        assert table.take(RequestId(name), Lane.INTERACTIVE, tenant="acme", tenant_limit=64).limit == 64
    assert table.take(RequestId("e"), Lane.JUDGE, tenant="acme", tenant_limit=2) == SlotTaken(2, 1)
    with pytest.raises(BusyError, match="acme"):
        table.take(RequestId("f"), Lane.INTERACTIVE, tenant="acme", tenant_limit=5)


def test_a_full_lane_leaves_a_tenant_no_slot_whatever_its_limit():
    table = SlotTable(lane_limits(max_judge=3))
    table.take(RequestId("a"), Lane.JUDGE)
    table.take(RequestId("b"), Lane.JUDGE)
    assert table.take(RequestId("c"), Lane.JUDGE, tenant="acme", tenant_limit=2) == SlotTaken(2, 0)


def test_a_tenant_without_requests_leaves_nothing_behind():
    table = SlotTable(lane_limits())
    table.take(RequestId("a"), Lane.JUDGE, tenant="acme")
    assert table.num_held_of("acme") == 1
    table._num_held_of["acme"] = 2
    with pytest.raises(RuntimeError, match="differ from the holders"):
        table.check_integrity()
    table._num_held_of["acme"] = 1
    table.release(RequestId("a"))
    assert not table._num_held_of


TENANTS = [("a", None), ("a", 1), ("b", 2)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from(Lane), st.sampled_from(TENANTS))))
def test_whatever_comes_the_counts_fit_the_holders(steps: list[tuple[bool, int, Lane, tuple[str, int | None]]]):
    table = SlotTable({lane: LaneLimit(1, 1) if lane is Lane.JUDGE else LaneLimit(3) for lane in Lane})
    held: dict[int, tuple[Lane, str]] = {}
    for is_take, number, lane, (tenant, limit) in steps:
        if not is_take:
            assert table.release(RequestId(str(number))) == (held.pop(number, None) is not None)
        elif number not in held:
            of_lane = sum(one == lane for one, _ in held.values())
            of_tenant = sum(one == tenant for _, one in held.values())
            max_running, max_held = (1, 2) if lane is Lane.JUDGE else (3, 3)
            is_over = limit is not None and limit < max_running and of_tenant >= limit
            if is_over or of_lane == max_held:
                with pytest.raises(BusyError):
                    table.take(RequestId(str(number)), lane, tenant=tenant, tenant_limit=limit)
            else:
                table.take(RequestId(str(number)), lane, tenant=tenant, tenant_limit=limit)
                held[number] = (lane, tenant)
        table.check_integrity()
        assert set(table._held) == set(map(str, held))
