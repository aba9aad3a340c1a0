"""Sequences run on an executor in any cut and company; what the tests of bit equality compare."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memra.engine.executor import Executor, RowBatch


@dataclass
class Run:
    """Some rows of one sequence: `tokens` at positions `start` and on, with the sequence's pages in order.

    A recurrent model goes on from the state `state_in` (-1 is the beginning) and leaves `state_out`.
    """

    tokens: Sequence[int]
    pages: Sequence[int]
    start: int = 0
    state_in: int = -1
    state_out: int | None = None


def make_batch(runs: Sequence[Run], *, outputs: Sequence[int] | None = None) -> RowBatch:
    """Put runs together in this order; all rows are outputs unless told otherwise."""
    longest = max((len(run.pages) for run in runs), default=1)
    tables = np.zeros((len(runs), longest), dtype=np.int32)
    for index, run in enumerate(runs):
        tables[index, : len(run.pages)] = run.pages
    tokens = [token for run in runs for token in run.tokens]
    return RowBatch(
        token_ids=np.array(tokens, dtype=np.int32),
        positions=np.array([run.start + i for run in runs for i in range(len(run.tokens))], dtype=np.int32),
        sequences=np.array([index for index, run in enumerate(runs) for _ in run.tokens], dtype=np.int32),
        page_tables=tables,
        output_rows=np.array(range(len(tokens)) if outputs is None else outputs, dtype=np.int32),
        states_in=np.array([run.state_in for run in runs if run.state_out is not None], dtype=np.int32),
        states_out=np.array([run.state_out for run in runs if run.state_out is not None], dtype=np.int32),
    )


def run_rows(executor: Executor, runs: Sequence[Run]) -> list[NDArray[np.float32]]:
    """Run one step; the logits of every run's rows."""
    logits = executor.run(make_batch(runs)).copy()
    return np.split(logits, np.cumsum([len(run.tokens) for run in runs])[:-1])


def prefill(executor: Executor, run: Run, cut: int) -> NDArray[np.float32]:
    """Run a sequence in chunks of `cut` rows; the logits of all rows.

    Of a recurrent model the states `run.state_out` and the one after it are used in turns; the last is `run.state_out`.
    """
    starts = range(0, len(run.tokens), cut)
    parts, state = [], run.state_in
    for index, start in enumerate(starts):
        after = None if run.state_out is None else run.state_out + (len(starts) - 1 - index) % 2
        part = Run(run.tokens[start : start + cut], run.pages, run.start + start, state, after)
        parts.append(run_rows(executor, [part])[0])
        state = -1 if after is None else after
    return np.concatenate(parts)
