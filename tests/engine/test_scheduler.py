from collections.abc import Callable
from typing import Any

import pytest

from memra.engine.host_shares import HostShares
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.scheduler import Scheduler
from memra.engine.sequence import Sequence, SequencePhase
from memra.engine.sequence_memory import SequenceMemory
from memra.errors import IntegrityError
from memra.types import Lane


class Desk:
    """A scheduler and the names of what it does."""

    def __init__(self, model: Any, make_request: Callable[..., Any]) -> None:
        self.model = model
        self.memory = SequenceMemory(model, budget=PrefixBudget(0), host=HostShares(None))
        self.scheduler = Scheduler(model, self.memory)
        self._make_request = make_request
        self.sequences: dict[str, Sequence] = {}

    def enqueue(
        self, name: str, num_prompt_tokens: int = 4, max_new_tokens: int = 4, lane: str = "interactive"
    ) -> None:
        request = self._make_request(name, range(num_prompt_tokens), max_new_tokens, lane=Lane(lane))
        self.sequences[name] = Sequence(request, context_tokens=self.model.context_tokens)
        self.scheduler.enqueue(self.sequences[name])

    def admit(self) -> list[str]:
        names = []
        while (sequence := self.scheduler.admit_next()) is not None:
            names.append(sequence.request_id)
        self.scheduler.check_integrity()
        return names

    def plan(self) -> list[tuple[str, int, bool]]:
        return [(span.sequence.request_id, span.num_rows, span.is_sampled) for span in self.scheduler.plan_spans()]

    def compute(self) -> None:
        """Do what the plan says."""
        for span in self.scheduler.plan_spans():
            self.memory.accept(span.sequence, span.num_rows)
            if span.is_sampled:
                span.sequence.append(1)

    def retire(self, name: str) -> None:
        self.scheduler.retire(self.sequences[name])
        self.scheduler.check_integrity()


@pytest.fixture
def open_desk(
    make_model: Callable[..., Any], make_request: Callable[..., Any], fake_executor: Callable[..., Any]
) -> Callable[..., Desk]:
    def open_desk(num_pages: int = 64, **limits: int) -> Desk:
        return Desk(make_model(fake_executor(num_pages=num_pages), **limits), make_request)

    return open_desk


def test_lanes_are_admitted_in_order_and_first_come_first_served_inside(open_desk: Callable[..., Desk]):
    desk = open_desk(max_rows=5)
    for name, lane in [
        ("h1", "harvest"),
        ("j1", "judge"),
        ("i1", "interactive"),
        ("h2", "harvest"),
        ("i2", "interactive"),
    ]:
        desk.enqueue(name, lane=lane)
    assert desk.admit() == ["i1", "i2", "j1", "h1", "h2"]


def test_rows_are_ordered_by_lane_and_then_by_admission(open_desk: Callable[..., Desk]):
    desk = open_desk()
    for name, lane in [
        ("h1", "harvest"),
        ("j1", "judge"),
        ("i1", "interactive"),
        ("j2", "judge"),
        ("i2", "interactive"),
    ]:
        desk.enqueue(name, lane=lane)
        assert desk.admit() == [name]
    assert [name for name, _, _ in desk.plan()] == ["i1", "i2", "j1", "j2", "h1"]


def test_no_more_rows_than_allowed_are_given(open_desk: Callable[..., Desk]):
    desk = open_desk(max_rows=2)
    for name in "abc":
        desk.enqueue(name)
    assert desk.admit() == ["a", "b"]
    desk.retire("a")
    assert desk.admit() == ["c"]


def test_admission_reserves_pages_for_the_longest_possible_answer(open_desk: Callable[..., Desk]):
    desk = open_desk(num_pages=5)
    desk.enqueue("a", num_prompt_tokens=4, max_new_tokens=5)  # 9 tokens: 3 pages of 4
    desk.enqueue("b", num_prompt_tokens=4, max_new_tokens=5)
    assert desk.admit() == ["a"]
    assert desk.model.pool.num_free == 2
    desk.retire("a")
    assert desk.model.pool.num_free == 5
    assert desk.admit() == ["b"]


def test_the_reservation_ends_at_the_context(open_desk: Callable[..., Desk]):
    desk = open_desk(context_tokens=16)
    desk.enqueue("a", num_prompt_tokens=4, max_new_tokens=1000)
    assert desk.admit() == ["a"]
    assert len(desk.sequences["a"].page_ids) == 4


def test_the_head_of_the_queue_is_not_overtaken_by_what_would_fit(open_desk: Callable[..., Desk]):
    desk = open_desk(num_pages=5)
    desk.enqueue("a", max_new_tokens=8)
    desk.enqueue("large", max_new_tokens=12)
    desk.enqueue("small", max_new_tokens=1)
    desk.enqueue("smallest", max_new_tokens=1, lane="harvest")
    assert desk.admit() == ["a"]
    desk.retire("a")
    assert desk.admit() == ["large"]


def test_a_waiting_lower_lane_does_not_hold_up_a_higher_one(open_desk: Callable[..., Desk]):
    desk = open_desk(num_pages=5)
    desk.enqueue("a", max_new_tokens=8)
    desk.enqueue("large", max_new_tokens=12, lane="harvest")
    assert desk.admit() == ["a"]
    desk.enqueue("small", max_new_tokens=4)
    assert desk.admit() == ["small"]


def test_what_generates_nothing_takes_no_row_and_no_page(open_desk: Callable[..., Desk]):
    desk = open_desk(num_pages=2, max_rows=1)
    desk.enqueue("a")
    desk.enqueue("nothing", max_new_tokens=0)
    assert desk.admit() == ["a", "nothing"]
    assert desk.scheduler.num_running == 1


def test_fresh_prompts_share_one_prefill_chunk_and_the_last_is_cut(open_desk: Callable[..., Desk]):
    desk = open_desk(prefill_chunk_tokens=10)
    for name in "abc":
        desk.enqueue(name)
    desk.admit()
    assert desk.plan() == [("a", 4, True), ("b", 4, True), ("c", 2, False)]
    desk.compute()
    assert desk.plan() == [("a", 1, True), ("b", 1, True), ("c", 2, True)]


def test_decoding_rows_come_first_and_leave_the_prefill_budget_alone(open_desk: Callable[..., Desk]):
    desk = open_desk(prefill_chunk_tokens=4)
    desk.enqueue("old", lane="harvest")
    desk.admit()
    desk.compute()
    desk.enqueue("long", num_prompt_tokens=11)
    desk.admit()
    assert desk.plan() == [("old", 1, True), ("long", 4, False)]
    desk.compute()
    desk.compute()
    assert desk.plan() == [("old", 1, True), ("long", 3, True)]


def test_retiring_works_in_every_phase_and_twice(open_desk: Callable[..., Desk]):
    desk = open_desk(max_rows=2, prefill_chunk_tokens=6)
    for name in ("decoding", "prefilling", "queued"):
        desk.enqueue(name)
    desk.admit()
    desk.compute()
    assert [sequence.phase.value for sequence in desk.sequences.values()] == list(desk.sequences)
    for name in desk.sequences:
        desk.retire(name)
        desk.retire(name)
        assert desk.sequences[name].phase is SequencePhase.FINISHED
    assert desk.scheduler.num_queued == desk.scheduler.num_running == 0
    assert desk.model.pool.num_free == 64


def test_check_integrity_names_a_sequence_that_lost_its_pages(open_desk: Callable[..., Desk]):
    desk = open_desk()
    desk.enqueue("a")
    desk.admit()
    desk.memory.release(desk.sequences["a"])
    desk.sequences["a"].finish()
    with pytest.raises(IntegrityError, match="sequence a is finished with 0 pages"):
        desk.scheduler.check_integrity()


def test_check_integrity_finds_pages_that_nobody_holds(open_desk: Callable[..., Desk]):
    desk = open_desk()
    desk.model.pool.allocate(1)
    with pytest.raises(IntegrityError, match="page 0"):
        desk.scheduler.check_integrity()
