"""Spans of sequences laid out as the arrays that an executor takes.

Knows the layout and nothing else: which spans run is the scheduler's business. The arrays are reused from batch to
batch, so a batch is valid until the next one is built.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memra.engine.executor import RowBatch
from memra.engine.loaded_model import LoadedModel
from memra.engine.sequence import Sequence

MAX_SCORED_ROWS = 32
"""In one step, of one sequence: their logits are 32 MiB at a vocabulary of a quarter of a million."""


@dataclass(frozen=True, slots=True)
class RowSpan:
    """The next tokens of one sequence that one step computes.

    Attributes:
        num_rows: tokens from the first not yet computed one on, at least 1.
        is_sampled: whether the last row's logits choose the sequence's next token.
        is_scored: whether the logits of all rows are wanted, because they tell how likely the prompt's tokens are.
    """

    sequence: Sequence
    num_rows: int
    is_sampled: bool
    is_scored: bool = False

    @property
    def num_outputs(self) -> int:
        """The last rows whose logits are wanted."""
        return self.num_rows if self.is_scored else int(self.is_sampled)


class RowBatchBuilder:
    """Builds the batches of one model in memory that is allocated once."""

    def __init__(self, model: LoadedModel) -> None:
        """Make room for the widest step: every row decoding beside a full prefill chunk."""
        self._page_tokens = model.executor.page_tokens
        max_tokens = model.max_rows + model.prefill_chunk_tokens
        max_pages = min(model.count_pages(model.context_tokens), model.pool.num_pages)
        self._token_ids = np.zeros(max_tokens, np.int32)
        self._positions = np.zeros(max_tokens, np.int32)
        self._sequences = np.zeros(max_tokens, np.int32)
        self._output_rows = np.zeros(model.max_rows + MAX_SCORED_ROWS, np.int32)
        self._page_tables = np.zeros(model.max_rows * max_pages, np.int32)
        self._states = np.zeros((2, model.max_rows), np.int32)
        self._has_states = model.executor.num_states > 0
        self._ascending = np.arange(model.context_tokens, dtype=np.int32)

    def build(self, spans: list[RowSpan]) -> RowBatch:
        """Lay the spans out in their order; each sequence may occur once."""
        row = 0
        num_outputs = 0
        for index, span in enumerate(spans):
            start = span.sequence.num_computed_tokens
            rows = slice(row, row + span.num_rows)
            self._token_ids[rows] = span.sequence.read_tokens(start, span.num_rows)
            self._positions[rows] = self._ascending[start : start + span.num_rows]
            self._sequences[rows] = index
            row += span.num_rows
            if self._has_states:
                self._states[:, index] = span.sequence.state_in, span.sequence.state_out
            outputs = slice(num_outputs, num_outputs + span.num_outputs)
            self._output_rows[outputs] = np.arange(row - span.num_outputs, row)
            num_outputs += span.num_outputs
        num_states = len(spans) if self._has_states else 0
        return RowBatch(
            token_ids=self._token_ids[:row],
            positions=self._positions[:row],
            sequences=self._sequences[:row],
            page_tables=self._lay_page_tables(spans),
            output_rows=self._output_rows[:num_outputs],
            states_in=self._states[0, :num_states],
            states_out=self._states[1, :num_states],
        )

    def _lay_page_tables(self, spans: list[RowSpan]) -> NDArray[np.int32]:
        """Copy the tables as far as this step reads and writes: int32 `[S, P]`, contiguous."""
        ends = [span.sequence.num_computed_tokens + span.num_rows for span in spans]
        nums_pages = [-(-end // self._page_tokens) for end in ends]
        width = max(nums_pages)
        tables = self._page_tables[: len(spans) * width].reshape(len(spans), width)
        for table, span, num_pages in zip(tables, spans, nums_pages, strict=True):
            table[:num_pages] = span.sequence.page_table[:num_pages]
            table[num_pages:] = 0
        return tables
