"""Times steps of native plans alone and prints them as a table: what the operators' `bench.py` share.

Knows clocks, plans and columns; refuses to know what an operator computes. The fastest of many calls counts, so that
other processes count little.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native import Batch, CacheLayer, Plan, RowOp, ThreadPool, usable_variants

BATCHES = (1, 8, 64)
"""Rows of a step: decoding, a few sequences at once, a part of a prompt."""
NUM_CALLS = 30
_CHAIN = 64
"""Operations of one step over which a row-local operation is averaged: alone it is shorter than the call."""


def fastest_us(call: Callable[[], object], *, num_calls: int = NUM_CALLS) -> float:
    """Return the microseconds that the fastest of some calls takes."""
    best = float("inf")
    for _ in range(num_calls):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def row_operation_us(
    pool: ThreadPool, width: int, num_rows: int, *, add: Callable[[Plan, int], Callable[[], None]]
) -> float:
    """Return the microseconds of one row-local operation: many of them in one step, less the step without them.

    Args:
        pool: has one thread.
        width: of the rows, which come from an embedding lookup and lie in the processor's cache, as in a model.
        num_rows: of the step.
        add: takes a plan and the buffer of the rows `[num_rows, width]`, makes what the operation needs beside them,
            and returns what adds the operation once.
    """
    times = []
    for count in (_CHAIN, 0):
        plan = Plan(pool, variant=usable_variants()[0], max_rows=num_rows)
        add_once = add(plan, lookup(plan, width))
        for _ in range(count):
            add_once()
        close(plan, width)
        times.append(fastest_us(partial(plan.run, make_batch(num_rows))))
        plan.close()
    return max(times[0] - times[1], 0.0) / _CHAIN


def recurrent_step_us(pool: ThreadPool, num_rows: int, *, add: Callable[[Plan], int]) -> float:
    """Return the microseconds of a step of one sequence that goes on from a state and leaves another.

    Args:
        pool: has one thread.
        num_rows: tokens of the step.
        add: adds one operator and what it reads to a plan; returns the float32 values of its state.
    """
    plan = Plan(pool, variant=usable_variants()[0], max_rows=num_rows)
    plan.states(2, num_floats=add(plan))
    close(plan, 16)
    first, second = np.zeros(1, np.int32), np.ones(1, np.int32)
    batch = replace(make_batch(num_rows), states_in=first, states_out=second)
    found = fastest_us(partial(plan.run, batch))
    plan.close()
    return found


def lookup(plan: Plan, width: int, *, quants: bool = False) -> int:
    """Add an embedding lookup of a float32 row that stands in for what an operator reads; returns its buffer."""
    out = plan.buffer(width, quants=quants)
    table: NDArray[np.float32] = np.random.default_rng(width).standard_normal(width).astype(np.float32)
    plan.row(RowOp(kind="embed", out=out, stored=table.view(np.uint8), stored_row_bytes=table.nbytes))
    return out


def close(plan: Plan, width: int) -> None:
    """Add what every plan has and no batch of `make_batch` asks for: a page and a head."""
    plan.cache(num_pages=1, layers=[CacheLayer(1, 16, 16)])
    weight = plan.weight(np.zeros(4 * width, np.uint8), quant_type="F32", rows=1, columns=width)
    plan.head(lookup(plan, width), weight=weight)


def make_batch(num_rows: int, *, num_outputs: int = 0) -> Batch:
    """Return rows of token 0 on one page, the first of which have logits."""
    zeros, rows = np.zeros(num_rows, np.int32), np.arange(num_rows, dtype=np.int32)
    return Batch(zeros, rows, zeros, np.zeros((1, 1), np.int32), rows[:num_outputs])


def print_table(
    title: str, columns: Sequence[object], rows: Iterable[tuple[str, Sequence[float]]], *, head: str = ""
) -> None:
    """Print rows as they come: a name and a figure a column, with three digits that count.

    Args:
        title: what is measured; the variant, the thread and the unit are added.
        columns: their headings; a number is one of rows.
        rows: measured while they are printed.
        head: heads the names.
    """
    names = [f"{column} rows" if isinstance(column, int) else str(column) for column in columns]
    sys.stdout.write(f"{title}, {usable_variants()[0]}, one thread, microseconds\n\n")
    sys.stdout.write(f"| {head} | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}\n")
    for name, values in rows:
        sys.stdout.write(f"| {name} | {' | '.join(_format(value) for value in values)} |\n")
        sys.stdout.flush()


def _format(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004  (three digits)
