"""Whole sequences cut into steps: which rows are computed together when nothing is generated.

Trade: packs sequences into an executor's pages and rows. An encoder's sequences lie whole in one step; a causal model's
may be cut anywhere. Refuses to know what the rows are made into. Called by `pooled_embeddings`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memra.engine.executor import RowBatch
from memra.types import TokenId

STEP_ROWS = 512
"""Rows of a step, unless one sequence that cannot be cut is longer: what the native executor computes at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of one sequence in a step.

    Attributes:
        index: of the sequence, among all.
        first: position of the first row.
        token_ids: of these rows.
        page_ids: of the whole sequence, int32, in order.
    """

    index: int
    first: int
    token_ids: Sequence[TokenId]
    page_ids: NDArray[np.int32]

    def taken(self, begin: int, end: int) -> "Piece":
        """Some of the rows, counted from the piece's first."""
        return Piece(self.index, self.first + begin, self.token_ids[begin:end], self.page_ids)


def cut_steps(
    sequences: Sequence[Sequence[TokenId]], *, page_tokens: int, num_pages: int, is_causal: bool
) -> Iterator[list[Piece]]:
    """Yield the steps that compute all sequences, in order.

    Args:
        sequences: token ids, none of them empty.
        page_tokens: tokens a page.
        num_pages: pages that may be used, from 0 on; they hold the longest sequence.
        is_causal: whether a sequence may be cut.
    """
    for group in _cut_groups(sequences, page_tokens, num_pages, max_rows=None if is_causal else STEP_ROWS):
        if is_causal:
            yield from _cut_group(group)
        else:
            yield group


def _cut_groups(
    sequences: Sequence[Sequence[TokenId]], page_tokens: int, num_pages: int, *, max_rows: int | None
) -> Iterator[list[Piece]]:
    """Yield whole sequences that have pages, and rows, beside each other; a longer one stands alone."""
    group: list[Piece] = []
    num_used = num_rows = 0
    for index, token_ids in enumerate(sequences):
        needed = -(-len(token_ids) // page_tokens)
        is_full = num_used + needed > num_pages or (max_rows is not None and num_rows + len(token_ids) > max_rows)
        if group and is_full:
            yield group
            group, num_used, num_rows = [], 0, 0
        group.append(Piece(index, 0, token_ids, np.arange(num_used, num_used + needed, dtype=np.int32)))
        num_used, num_rows = num_used + needed, num_rows + len(token_ids)
    if group:
        yield group


def _cut_group(group: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield steps of `STEP_ROWS` rows; a sequence goes on in the next step where one is full."""
    step: list[Piece] = []
    num_free = STEP_ROWS
    for piece in group:
        done = 0
        while done < len(piece.token_ids):
            part = piece.taken(done, done + num_free)
            step.append(part)
            done, num_free = done + len(part.token_ids), num_free - len(part.token_ids)
            if not num_free:
                yield step
                step, num_free = [], STEP_ROWS
    if step:
        yield step


def make_batch(pieces: Sequence[Piece], output_rows: NDArray[np.int32]) -> RowBatch:
    """Put a step's pieces together.

    Args:
        pieces: of different sequences.
        output_rows: int32 `[N]`, rows of the step that are wanted, ascending.
    """
    lengths = [len(piece.token_ids) for piece in pieces]
    tables = np.zeros((len(pieces), max(len(piece.page_ids) for piece in pieces)), np.int32)
    for table, piece in zip(tables, pieces, strict=True):
        table[: len(piece.page_ids)] = piece.page_ids
    firsts = np.repeat([piece.first for piece in pieces], lengths)
    begins = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    return RowBatch(
        token_ids=np.concatenate([np.asarray(piece.token_ids, np.int32) for piece in pieces]),
        positions=(firsts + np.arange(sum(lengths)) - begins).astype(np.int32),
        sequences=np.repeat(np.arange(len(pieces), dtype=np.int32), lengths),
        page_tables=tables,
        output_rows=output_rows,
    )
