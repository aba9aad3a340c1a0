"""Whether a request whose size is known runs now, waits its turn, or is refused, and how long the wait will be.

Arithmetic over the worker's gauges and what was let in since they were read. Refuses to know clocks, tokens' meaning
and who asks. Called by the admission actor alone.

The estimate takes the model for a counter with as many clerks as sequences run: one of them ends every `mean_row_s`
over their number, on average (Little's law), and so many must end as free the row and the pages that are missing.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from memra.errors import (
    BusyError,
    DeadlineUnreachableError,
    QueueFullError,
    QueueWaitError,
    RequestTooLongForMemoryError,
)
from memra.messages.load import ModelLoad
from memra.types import Lane

_LANES = tuple(Lane)
"""In the order in which the engine serves them."""

MAX_QUEUED_TOKENS = 1 << 20
"""Of texts that wait to become vectors on one model: a small encoder on a CPU is busy for minutes with so many."""

_RETRY_UNKNOWN_S = 2.0
"""Advised wait before anything was measured."""


class WaitCause(StrEnum):
    """What a request waits for."""

    ROW = "row"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How long a queue may become.

    Attributes:
        max_depth: interactive requests that may wait.
        wait_ceiling_s: longest wait that is begun, seconds; None for any.
    """

    max_depth: int = 256
    wait_ceiling_s: float | None = None


@dataclass(frozen=True, slots=True)
class WorkAsked:
    """What a request will need.

    Attributes:
        max_new_tokens: at least 0.
        may_shorten: the context, not the client, set `max_new_tokens`, so memory may set it as well.
        remaining_s: until the request's deadline, seconds; None without one.
        prompt_param: request field that holds the prompt, for errors.
    """

    lane: Lane
    num_prompt_tokens: int
    max_new_tokens: int
    may_shorten: bool = False
    remaining_s: float | None = None
    prompt_param: str | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What comes before a request, beside what runs.

    Attributes:
        num_sequences: they wait, or were let in since the gauges were read.
        num_pages: they will ask for.
        num_waiting_in_lane: requests of the same lane that wait, over all models.
    """

    num_sequences: int = 0
    num_pages: int = 0
    num_waiting_in_lane: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A request may go to the worker.

    Attributes:
        num_pages: it will ask for.
        max_new_tokens: as asked, or what memory holds.
        waits_for: None when it runs at once.
        wait_s: estimate, seconds; 0 when it runs at once, None when nothing is known.
    """

    num_pages: int
    max_new_tokens: int
    waits_for: WaitCause | None = None
    wait_s: float | None = 0.0


def lanes_before(lane: Lane) -> tuple[Lane, ...]:
    """Return the lanes whose waiting requests come before a new one of this lane, itself included."""
    return _LANES[: _LANES.index(lane) + 1]


def queued_ahead(load: ModelLoad, lane: Lane) -> Ahead:
    """Return what waits on a model before a new request of this lane, by the gauges alone."""
    num_ahead = sum(load.num_queued.get(before, 0) for before in lanes_before(lane))
    num_queued = sum(load.num_queued.values())
    # The gauge of pages does not tell lanes apart, so each waiting request is taken for an average one.
    num_pages = math.ceil(load.num_pages_queued * num_ahead / num_queued) if num_queued else 0
    return Ahead(num_ahead, num_pages)


def place(work: WorkAsked, load: ModelLoad, *, ahead: Ahead, limits: QueueLimits) -> Placement:
    """Let a request in, or refuse it.

    Args:
        work: what it needs.
        load: gauges of its model.
        ahead: who comes before it.
        limits: how long the queue may be.

    Raises:
        RequestTooLongForMemoryError: it does not fit an empty model.
        BusyError: it is not interactive, and cannot begin at once.
        QueueFullError, DeadlineUnreachableError, QueueWaitError: it would wait, and may not.
    """
    if work.max_new_tokens == 0:  # the engine gives it neither row nor pages, but texts wait for those before them
        if load.num_queued_tokens:
            _check_texts(work, load, ahead=ahead, limits=limits)
        return Placement(0, 0)
    max_new_tokens = _fit_memory(work, load)
    num_pages = -(-(work.num_prompt_tokens + max_new_tokens) // load.page_tokens)
    # The engine lets running harvest sequences wait again for anybody else.
    gives_way = work.lane is not Lane.HARVEST
    num_before = load.num_active - gives_way * load.num_harvest + ahead.num_sequences
    num_pages_free = load.num_pages_free + gives_way * load.num_pages_harvest
    missing_rows = num_before + 1 - load.max_rows
    missing_pages = num_pages + ahead.num_pages - num_pages_free
    if missing_rows <= 0 and missing_pages <= 0:
        return Placement(num_pages, max_new_tokens)
    wait_s = _estimate_wait(load, ahead, missing_rows=missing_rows, missing_pages=missing_pages)
    _check_wait(work, wait_s, ahead=ahead, limits=limits)
    cause = WaitCause.ROW if missing_rows > 0 else WaitCause.MEMORY
    return Placement(num_pages, max_new_tokens, cause, wait_s)


def _check_texts(work: WorkAsked, load: ModelLoad, *, ahead: Ahead, limits: QueueLimits) -> None:
    s_per_token = load.s_per_prefill_token
    wait_s = None if s_per_token is None else load.num_queued_tokens * s_per_token
    if load.num_queued_tokens >= MAX_QUEUED_TOKENS:
        _refuse(QueueFullError, f"{load.num_queued_tokens} tokens of texts wait already", wait_s)
    _check_wait(work, wait_s, ahead=ahead, limits=limits)


def _fit_memory(work: WorkAsked, load: ModelLoad) -> int:
    """Return how many tokens may be generated: as asked, or what an empty model has pages for."""
    room = load.num_pages * load.page_tokens - work.num_prompt_tokens
    if work.max_new_tokens <= room:
        return work.max_new_tokens
    if work.may_shorten and room > 0:
        return room
    raise RequestTooLongForMemoryError(
        f"The prompt's {work.num_prompt_tokens} tokens and {work.max_new_tokens} more for the answer are over the "
        f"{load.num_pages * load.page_tokens} that this model's cache holds; ask for fewer, or raise MEMRA_KV_MB.",
        param="max_tokens" if room > 0 else work.prompt_param,
    )


def _estimate_wait(load: ModelLoad, ahead: Ahead, *, missing_rows: int, missing_pages: int) -> float | None:
    num_holding = load.num_active + ahead.num_sequences
    if load.mean_row_s is None or not num_holding:
        return None
    pages_per_row = max(1.0, (load.num_pages - load.num_pages_free + ahead.num_pages) / num_holding)
    num_ends = max(missing_rows, math.ceil(missing_pages / pages_per_row))
    return num_ends * load.mean_row_s / min(load.max_rows, num_holding)


def _check_wait(work: WorkAsked, wait_s: float | None, *, ahead: Ahead, limits: QueueLimits) -> None:
    if work.lane is not Lane.INTERACTIVE:
        _refuse(BusyError, f"There is no room for a {work.lane.value} request to begin at once", wait_s)
    if ahead.num_waiting_in_lane >= limits.max_depth:
        _refuse(QueueFullError, f"{ahead.num_waiting_in_lane} requests wait already, as many as may", wait_s)
    if wait_s is None:
        return
    if work.remaining_s is not None and wait_s > work.remaining_s:
        _refuse(
            DeadlineUnreachableError,
            f"The request would wait about {wait_s:.0f} s, which is past its deadline",
            wait_s,
        )
    if limits.wait_ceiling_s is not None and wait_s > limits.wait_ceiling_s:
        _refuse(QueueWaitError, f"The request would wait about {wait_s:.0f} s, longer than anybody may here", wait_s)


def _refuse(kind: type[BusyError], reason: str, wait_s: float | None) -> NoReturn:
    raise kind(f"{reason}; try again later.", retry_after_s=_RETRY_UNKNOWN_S if wait_s is None else wait_s)
