import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from memra.engine.page_pool import PagePool
from memra.errors import IntegrityError

NUM_PAGES = 12


def test_allocate_hands_out_every_page_once():
    pool = PagePool(3)
    assert pool.allocate(2) == (0, 1)
    assert pool.allocate(1) == (2,)
    assert pool.num_free == 0


def test_no_room_is_a_value_and_takes_nothing():
    pool = PagePool(3)
    assert pool.allocate(4) is None
    assert pool.num_free == 3
    assert pool.allocate(0) == ()


def test_a_retained_page_is_free_only_after_its_last_holder():
    pool = PagePool(2)
    pages = pool.allocate(2)
    pool.retain(pages[:1])
    pool.release(pages)
    assert pool.num_free == 1
    pool.check_integrity([pages[:1]])
    pool.release(pages[:1])
    assert pool.num_free == 2


def test_releasing_a_free_page_is_refused_and_changes_nothing():
    pool = PagePool(2)
    held = pool.allocate(1)
    with pytest.raises(IntegrityError, match="page 1 has 0 holders"):
        pool.release((*held, 1))
    with pytest.raises(IntegrityError, match="page 0 has 1 holders, but 2"):
        pool.release(held + held)
    pool.check_integrity([held])


@pytest.mark.parametrize("page_id", [1, 2, -1])
def test_retaining_a_page_that_nobody_holds_is_refused(page_id: int):
    pool = PagePool(2)
    pool.allocate(1)
    with pytest.raises(IntegrityError, match=f"page {page_id} has 0 holders"):
        pool.retain([page_id])


@pytest.mark.parametrize("holders", [[], [(0,), (0,)], [(0, 1)], [(0,), (5,)]])
def test_check_integrity_names_a_page_whose_count_is_not_its_holders(holders: list[tuple[int, ...]]):
    pool = PagePool(2)
    pool.allocate(1)
    pool.check_integrity([(0,)])
    with pytest.raises(IntegrityError, match=r"page \d"):
        pool.check_integrity(holders)


def test_check_integrity_finds_a_lost_and_a_doubled_free_page():
    pool = PagePool(2)
    page = pool._free.pop()
    with pytest.raises(IntegrityError, match="0 times in the free list"):
        pool.check_integrity([])
    pool._free += [page, page]
    with pytest.raises(IntegrityError, match="2 times in the free list"):
        pool.check_integrity([])


class PagePoolMachine(RuleBasedStateMachine):
    """Holders come, share and go in any order; the counts must always be theirs."""

    holdings = Bundle("holdings")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.holders: list[tuple[int, ...]] = []

    @rule(target=holdings, num=st.integers(0, NUM_PAGES + 1))
    def allocate(self, num: int) -> tuple[int, ...]:
        num_free = self.pool.num_free
        pages = self.pool.allocate(num)
        assert (pages is None) == (num > num_free)
        if pages is None:
            return ()
        assert len(set(pages)) == num
        assert not set(pages) & {page for holder in self.holders for page in holder}
        self.holders.append(pages)
        return pages

    @rule(target=holdings, pages=holdings, num=st.integers(0, NUM_PAGES))
    def share_a_prefix(self, pages: tuple[int, ...], num: int) -> tuple[int, ...]:
        shared = pages[:num]
        self.pool.retain(shared)
        self.holders.append(shared)
        return shared

    @rule(pages=consumes(holdings))
    def release(self, pages: tuple[int, ...]) -> None:
        self.pool.release(pages)
        if pages:
            self.holders.remove(pages)

    @invariant()
    def counts_are_those_of_the_holders(self) -> None:
        self.pool.check_integrity(self.holders)
        assert self.pool.num_free == NUM_PAGES - len({page for holder in self.holders for page in holder})


TestPagePoolMachine = PagePoolMachine.TestCase
TestPagePoolMachine.settings = settings(derandomize=True, deadline=None, max_examples=100, stateful_step_count=40)
