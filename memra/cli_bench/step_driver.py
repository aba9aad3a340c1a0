"""Drives an executor as the engine would, with given tokens and without sampling: the bare step.

Knows pages and rows; refuses to know clocks, text and queues. Tokens that lie in the pages already are not computed
again, so a deep cache is filled once and used in every round.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memra.engine.executor import Executor, RowBatch
from memra.types import TokenId


class StepDriver:
    """Sequences with fixed pages in one executor."""

    def __init__(self, executor: Executor, *, capacities: Sequence[int], chunk_tokens: int) -> None:
        """Lay the sequences out in the executor's pages.

        Args:
            executor: has at least `count_pages` pages.
            capacities: tokens for which each sequence has room.
            chunk_tokens: most prompt tokens of one call.
        """
        self._executor = executor
        self._chunk_tokens = chunk_tokens
        self._known: list[list[TokenId]] = [[] for _ in capacities]
        self._tables: list[NDArray[np.int32]] = []
        first = 0
        for capacity in capacities:
            num_pages = -(-capacity // executor.page_tokens)
            self._tables.append(np.arange(first, first + num_pages, dtype=np.int32))
            first += num_pages

    @staticmethod
    def count_pages(capacities: Sequence[int], page_tokens: int) -> int:
        """Pages that sequences of these capacities take."""
        return sum(-(-capacity // page_tokens) for capacity in capacities)

    def forget(self) -> None:
        """Take the pages for overwritten."""
        self._known = [[] for _ in self._known]

    def prefill(self, token_ids: Sequence[TokenId], *, sequence: int = 0) -> NDArray[np.float32]:
        """Compute a prompt from its beginning, whatever the pages hold; returns the last token's logits `[1, V]`."""
        self._known[sequence] = []
        return self._extend(sequence, token_ids)

    def all_logits(self, token_ids: Sequence[TokenId]) -> NDArray[np.float32]:
        """Compute a prompt from its beginning; returns the logits of every token `[N, V]`."""
        self._known[0] = []
        parts = []
        for at in range(0, len(token_ids), self._chunk_tokens):
            chunk = token_ids[at : at + self._chunk_tokens]
            parts.append(self._run_chunk(0, chunk, output_rows=range(len(chunk))).copy())  # valid until the next call
            self._known[0] += chunk
        return np.concatenate(parts)

    def fill(self, sequence: int, token_ids: Sequence[TokenId], *, num_prompt_tokens: int) -> None:
        """Make the pages hold the first `num_prompt_tokens`, computing only what they do not hold yet.

        What lies behind them is kept too, as far as it agrees with `token_ids`.
        """
        known = self._known[sequence]
        num_both = min(len(known), len(token_ids))
        num_same = next((at for at in range(num_both) if known[at] != token_ids[at]), num_both)
        if num_same < num_both:
            del known[num_same:]
        if len(known) < num_prompt_tokens:
            self._extend(sequence, token_ids[len(known) : num_prompt_tokens])

    def plan_decode(self, token_ids: Sequence[Sequence[TokenId]], *, first: int) -> list[RowBatch]:
        """Build one batch for every token from position `first` on, a row of each sequence in it."""
        num_rows = len(token_ids)
        ids = np.array(token_ids, np.int32)
        last = ids.shape[1]
        width = -(-last // self._executor.page_tokens)
        tables = np.stack([table[:width] for table in self._tables[:num_rows]])
        rows = np.arange(num_rows, dtype=np.int32)
        return [
            RowBatch(
                token_ids=np.ascontiguousarray(ids[:, position]),
                positions=np.full(num_rows, position, np.int32),
                sequences=rows,
                page_tables=np.ascontiguousarray(tables[:, : position // self._executor.page_tokens + 1]),
                output_rows=rows,
            )
            for position in range(first, last)
        ]

    def _extend(self, sequence: int, token_ids: Sequence[TokenId]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = np.empty((0, 0), np.float32)
        for at in range(0, len(token_ids), self._chunk_tokens):
            chunk = token_ids[at : at + self._chunk_tokens]
            is_last = at + self._chunk_tokens >= len(token_ids)
            logits = self._run_chunk(sequence, chunk, output_rows=[len(chunk) - 1] if is_last else [])
            self._known[sequence] += chunk
        return logits

    def _run_chunk(self, sequence: int, chunk: Sequence[TokenId], *, output_rows: Sequence[int]) -> NDArray[np.float32]:
        start = len(self._known[sequence])
        num_pages = -(-(start + len(chunk)) // self._executor.page_tokens)
        return self._executor.run(
            RowBatch(
                token_ids=np.array(chunk, np.int32),
                positions=np.arange(start, start + len(chunk), dtype=np.int32),
                sequences=np.zeros(len(chunk), np.int32),
                page_tables=self._tables[sequence][None, :num_pages].copy(),
                output_rows=np.array(output_rows, np.int32),
            )
        )
