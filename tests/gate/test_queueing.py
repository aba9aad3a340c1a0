import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.errors import (
    BusyError,
    DeadlineUnreachableError,
    QueueFullError,
    QueueWaitError,
    RequestError,
    RequestTooLongForMemoryError,
)
from memra.gate.queueing import (
    MAX_QUEUED_TOKENS,
    Ahead,
    Placement,
    QueueLimits,
    WaitCause,
    WorkAsked,
    lanes_before,
    place,
    queued_ahead,
)
from memra.messages.load import ModelLoad
from memra.types import Lane

EMPTY = ModelLoad(page_tokens=16, num_pages=100, num_pages_free=100, max_rows=4, mean_row_s=8.0)
FULL_ROWS = replace(EMPTY, num_active=4, num_pages_free=60)
FULL_MEMORY = replace(EMPTY, num_active=2, num_pages_free=20)
WORK = WorkAsked(Lane.INTERACTIVE, num_prompt_tokens=100, max_new_tokens=60)
NOBODY = Ahead()
LIMITS = QueueLimits()


def test_with_room_a_request_runs_at_once_and_asks_for_whole_pages():
    assert place(WORK, EMPTY, ahead=NOBODY, limits=LIMITS) == Placement(10, 60, None, 0.0)
    assert place(replace(WORK, max_new_tokens=61), EMPTY, ahead=NOBODY, limits=LIMITS).num_pages == 11


def test_a_request_without_an_answer_needs_neither_row_nor_page():
    hopeless = replace(FULL_ROWS, num_pages=1, num_pages_free=0)
    for lane in Lane:
        work = WorkAsked(lane, num_prompt_tokens=10_000, max_new_tokens=0)
        assert place(work, hopeless, ahead=NOBODY, limits=LIMITS) == Placement(0, 0)


TEXTS = WorkAsked(Lane.INTERACTIVE, num_prompt_tokens=500, max_new_tokens=0)
BUSY_ENCODER = replace(EMPTY, num_active=1, num_queued_tokens=3000, s_per_prefill_token=0.001)


def test_texts_wait_for_the_tokens_before_them_and_interactive_ones_may():
    assert place(TEXTS, BUSY_ENCODER, ahead=NOBODY, limits=LIMITS) == Placement(0, 0)
    for lane in (Lane.JUDGE, Lane.HARVEST):
        with pytest.raises(BusyError, match=f"no room for a {lane.value} request") as refused:
            place(replace(TEXTS, lane=lane), BUSY_ENCODER, ahead=NOBODY, limits=LIMITS)
        assert refused.value.retry_after_s == 3.0
        idle = replace(BUSY_ENCODER, num_queued_tokens=0)
        assert place(replace(TEXTS, lane=lane), idle, ahead=NOBODY, limits=LIMITS) == Placement(0, 0)


@pytest.mark.parametrize(
    ("changes", "limits", "error"),
    [
        ({"remaining_s": 2.9}, LIMITS, DeadlineUnreachableError),
        ({}, QueueLimits(wait_ceiling_s=2.9), QueueWaitError),
        ({}, QueueLimits(max_depth=0), QueueFullError),
    ],
)
def test_texts_that_would_wait_too_long_are_refused(changes: dict[str, float], limits: QueueLimits, error: type):
    with pytest.raises(error):
        place(replace(TEXTS, **changes), BUSY_ENCODER, ahead=NOBODY, limits=limits)


def test_no_more_tokens_of_texts_wait_than_may():
    crowded = replace(BUSY_ENCODER, num_queued_tokens=MAX_QUEUED_TOKENS, s_per_prefill_token=None)
    with pytest.raises(QueueFullError, match="tokens of texts wait already"):
        place(TEXTS, crowded, ahead=NOBODY, limits=LIMITS)
    place(TEXTS, replace(crowded, num_queued_tokens=MAX_QUEUED_TOKENS - 1), ahead=NOBODY, limits=LIMITS)


def test_without_a_row_it_waits_for_the_next_end():
    placed = place(WORK, FULL_ROWS, ahead=NOBODY, limits=LIMITS)
    assert (placed.waits_for, placed.wait_s) == (WaitCause.ROW, 2.0)  # one of four rows of 8 s
    behind = place(WORK, FULL_ROWS, ahead=Ahead(num_sequences=4), limits=LIMITS)
    assert behind.wait_s == 10.0  # the fifth end


def test_without_memory_it_waits_for_as_many_ends_as_free_it():
    placed = place(replace(WORK, num_prompt_tokens=900), FULL_MEMORY, ahead=NOBODY, limits=LIMITS)
    # 60 pages are asked for and 20 are free; each of the two running sequences holds 40.
    assert (placed.num_pages, placed.waits_for, placed.wait_s) == (60, WaitCause.MEMORY, 4.0)
    more = place(replace(WORK, num_prompt_tokens=901), FULL_MEMORY, ahead=NOBODY, limits=LIMITS)
    assert more.wait_s == 8.0


def test_what_others_will_ask_for_is_not_given_away_twice():
    placed = place(WORK, EMPTY, ahead=Ahead(num_sequences=2, num_pages=95), limits=LIMITS)
    assert placed.waits_for is WaitCause.MEMORY
    assert place(WORK, EMPTY, ahead=Ahead(num_sequences=2, num_pages=90), limits=LIMITS).waits_for is None
    assert place(WORK, EMPTY, ahead=Ahead(num_sequences=4), limits=LIMITS).waits_for is WaitCause.ROW


def test_harvest_gives_way_to_everybody_but_itself():
    for full in (
        replace(FULL_ROWS, num_harvest=1, num_pages_harvest=10),
        replace(FULL_MEMORY, num_pages_free=0, num_harvest=1, num_pages_harvest=10),
    ):
        for lane in (Lane.INTERACTIVE, Lane.JUDGE):
            assert place(replace(WORK, lane=lane), full, ahead=NOBODY, limits=LIMITS).waits_for is None
        with pytest.raises(BusyError, match="harvest request"):
            place(replace(WORK, lane=Lane.HARVEST), full, ahead=NOBODY, limits=LIMITS)
    second = place(WORK, replace(FULL_ROWS, num_harvest=1), ahead=Ahead(num_sequences=1), limits=LIMITS)
    assert second.waits_for is WaitCause.ROW


def test_a_wait_that_nobody_can_know_is_begun():
    placed = place(
        replace(WORK, remaining_s=0.0),
        replace(FULL_ROWS, mean_row_s=None),
        ahead=NOBODY,
        limits=QueueLimits(wait_ceiling_s=0.0),
    )
    assert placed.wait_s is None


@pytest.mark.parametrize("lane", [Lane.JUDGE, Lane.HARVEST])
def test_a_dark_lane_never_waits_and_is_told_when_to_come_back(lane: Lane):
    with pytest.raises(BusyError, match=f"{lane.value} request") as refused:
        place(replace(WORK, lane=lane), FULL_ROWS, ahead=NOBODY, limits=LIMITS)
    assert type(refused.value) is BusyError
    assert refused.value.retry_after_s == 2.0
    with pytest.raises(BusyError) as refused:
        place(replace(WORK, lane=lane), FULL_ROWS, ahead=Ahead(num_sequences=8), limits=LIMITS)
    assert refused.value.retry_after_s == 18.0


def test_beyond_the_depth_nobody_queues():
    limits = QueueLimits(max_depth=3)
    assert place(WORK, FULL_ROWS, ahead=Ahead(3, 0, num_waiting_in_lane=2), limits=limits).wait_s == 8.0
    with pytest.raises(QueueFullError, match="3 requests wait") as refused:
        place(WORK, FULL_ROWS, ahead=Ahead(3, 0, num_waiting_in_lane=3), limits=limits)
    assert refused.value.retry_after_s == 8.0
    assert place(WORK, EMPTY, ahead=Ahead(0, 0, num_waiting_in_lane=3), limits=limits).wait_s == 0.0


def test_a_wait_past_the_deadline_is_not_begun():
    ahead = Ahead(num_sequences=4)
    assert place(replace(WORK, remaining_s=10.0), FULL_ROWS, ahead=ahead, limits=LIMITS).wait_s == 10.0
    with pytest.raises(DeadlineUnreachableError, match="about 10 s") as refused:
        place(replace(WORK, remaining_s=9.9), FULL_ROWS, ahead=ahead, limits=LIMITS)
    assert refused.value.retry_after_s == 10.0


def test_a_wait_over_the_ceiling_is_not_begun():
    ahead = Ahead(num_sequences=4)
    with pytest.raises(QueueWaitError, match="about 10 s") as refused:
        place(WORK, FULL_ROWS, ahead=ahead, limits=QueueLimits(wait_ceiling_s=9.9))
    assert refused.value.retry_after_s == 10.0


def test_what_never_fits_is_refused_by_its_name():
    for lane in Lane:
        with pytest.raises(RequestTooLongForMemoryError, match=r"1500 tokens and 101 more .* over the 1600") as refused:
            place(WorkAsked(lane, 1500, 101), FULL_ROWS, ahead=NOBODY, limits=LIMITS)
        assert refused.value.param == "max_tokens"
    with pytest.raises(RequestTooLongForMemoryError) as refused:
        place(WorkAsked(Lane.JUDGE, 1600, 1, prompt_param="messages"), EMPTY, ahead=NOBODY, limits=LIMITS)
    assert refused.value.param == "messages"
    assert place(WorkAsked(Lane.JUDGE, 1500, 100), EMPTY, ahead=NOBODY, limits=LIMITS).num_pages == 100


def test_an_answer_of_no_asked_length_is_cut_to_the_memory():
    work = WorkAsked(Lane.INTERACTIVE, 1500, 8000, may_shorten=True)
    assert place(work, EMPTY, ahead=NOBODY, limits=LIMITS) == Placement(100, 100)
    with pytest.raises(RequestTooLongForMemoryError):
        place(replace(work, num_prompt_tokens=1600), EMPTY, ahead=NOBODY, limits=LIMITS)


def test_only_better_lanes_stand_before_a_request():
    assert lanes_before(Lane.INTERACTIVE) == (Lane.INTERACTIVE,)
    assert lanes_before(Lane.HARVEST) == tuple(Lane)
    load = replace(EMPTY, num_queued={Lane.INTERACTIVE: 1, Lane.HARVEST: 3}, num_pages_queued=40)
    assert queued_ahead(load, Lane.INTERACTIVE) == Ahead(1, 10)
    assert queued_ahead(load, Lane.JUDGE) == Ahead(1, 10)
    assert queued_ahead(load, Lane.HARVEST) == Ahead(4, 40)
    assert queued_ahead(EMPTY, Lane.HARVEST) == NOBODY


@st.composite
def loads(draw: st.DrawFn) -> ModelLoad:
    num_pages, max_rows = draw(st.integers(1, 200)), draw(st.integers(1, 32))
    return ModelLoad(
        page_tokens=draw(st.sampled_from([1, 16, 64])),
        num_pages=num_pages,
        num_pages_free=draw(st.integers(0, num_pages)),
        max_rows=max_rows,
        num_active=draw(st.integers(0, max_rows)),
        mean_row_s=draw(st.none() | st.floats(0.01, 100)),
    )


@given(
    loads(),
    st.builds(
        WorkAsked,
        st.sampled_from(Lane),
        st.integers(1, 5000),
        st.integers(0, 5000),
        st.booleans(),
        remaining_s=st.none() | st.floats(0, 100),
    ),
    st.builds(Ahead, st.integers(0, 40), st.integers(0, 300), st.integers(0, 10)),
    st.builds(QueueLimits, st.integers(0, 10), st.none() | st.floats(0, 100)),
)
def test_whoever_is_let_in_fits_or_may_wait(load: ModelLoad, work: WorkAsked, ahead: Ahead, limits: QueueLimits):
    try:
        placed = place(work, load, ahead=ahead, limits=limits)
    except RequestError as error:
        assert isinstance(error, BusyError | RequestTooLongForMemoryError)  # noqa: PT017  (either is right)
        return
    assert 0 <= placed.max_new_tokens <= work.max_new_tokens
    assert placed.max_new_tokens == work.max_new_tokens or work.may_shorten
    if work.max_new_tokens:
        assert placed.num_pages == math.ceil((work.num_prompt_tokens + placed.max_new_tokens) / load.page_tokens)
        assert placed.num_pages <= load.num_pages
    if placed.waits_for is None:
        assert placed.num_pages == 0 or ahead.num_pages + placed.num_pages <= load.num_pages_free
        assert placed.num_pages == 0 or load.num_active + ahead.num_sequences < load.max_rows
        assert placed.wait_s == 0.0
    else:
        assert work.lane is Lane.INTERACTIVE
        assert placed.wait_s is None or placed.wait_s <= (work.remaining_s if work.remaining_s is not None else 1e9)


@given(loads(), st.integers(0, 40), st.integers(1, 300))
def test_more_ahead_never_means_a_shorter_wait(load: ModelLoad, num_ahead: int, num_tokens: int):
    work = WorkAsked(Lane.INTERACTIVE, num_tokens, 1, may_shorten=True)
    waits = []
    for more in (0, 1):
        try:
            waits.append(place(work, replace(load, mean_row_s=1.0), ahead=Ahead(num_ahead + more), limits=LIMITS))
        except RequestTooLongForMemoryError:
            return
    first, second = waits
    if load.num_active + num_ahead >= load.max_rows:  # below, one more ahead is one more clerk as well
        assert first.wait_s is not None
        assert second.wait_s is not None
        assert second.wait_s >= first.wait_s or first.waits_for is WaitCause.MEMORY
