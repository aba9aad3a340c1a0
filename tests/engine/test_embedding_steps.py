"""Sequences cut into steps."""

import numpy as np
import pytest

from memra.engine.embedding_steps import STEP_ROWS, Piece, cut_steps, make_batch

LENGTHS = [3, 600, 1, 512, 511, 64, 65, 1300, 7]
PAGE_TOKENS = 64


def _steps(*, is_causal: bool, num_pages: int = 40, lengths: list[int] = LENGTHS) -> list[list[Piece]]:
    sequences = [list(range(length)) for length in lengths]
    return list(cut_steps(sequences, page_tokens=PAGE_TOKENS, num_pages=num_pages, is_causal=is_causal))


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("num_pages", [21, 25, 400])
def test_every_row_is_computed_once_in_order_of_position(is_causal: bool, num_pages: int):  # noqa: FBT001  (a case)
    computed: dict[int, list[int]] = {}
    for step in _steps(is_causal=is_causal, num_pages=num_pages):
        for piece in step:
            rows = computed.setdefault(piece.index, [])
            assert piece.first == len(rows)
            rows += piece.token_ids
    assert computed == {index: list(range(length)) for index, length in enumerate(LENGTHS)}


@pytest.mark.parametrize("num_pages", [21, 400])
def test_an_encoders_sequences_lie_whole_in_steps_that_only_a_long_one_exceeds(num_pages: int):
    for step in _steps(is_causal=False, num_pages=num_pages):
        assert all(len(piece.token_ids) == LENGTHS[piece.index] for piece in step)
        assert len(step) == 1 or sum(len(piece.token_ids) for piece in step) <= STEP_ROWS


@pytest.mark.parametrize("num_pages", [21, 400])
def test_a_causal_models_steps_are_full_as_long_as_pages_last(num_pages: int):
    sizes = [sum(len(piece.token_ids) for piece in step) for step in _steps(is_causal=True, num_pages=num_pages)]
    assert max(sizes) == STEP_ROWS
    if num_pages == 400:
        assert all(size == STEP_ROWS for size in sizes[:-1])


@pytest.mark.parametrize("is_causal", [True, False])
def test_pages_of_a_sequence_are_nobody_elses_until_it_is_done(is_causal: bool):  # noqa: FBT001  (a case)
    owners: dict[int, tuple[int, int]] = {}
    for step in _steps(is_causal=is_causal, num_pages=25):
        for piece in step:
            assert len(piece.page_ids) * PAGE_TOKENS >= LENGTHS[piece.index]
            assert piece.page_ids.min() >= 0
            assert piece.page_ids.max() < 25
            end = piece.first + len(piece.token_ids)
            for page in piece.page_ids.tolist():
                owner, done = owners.get(page, (piece.index, 0))
                assert owner == piece.index or done == LENGTHS[owner]
                owners[page] = (piece.index, end)


def test_a_batch_names_each_rows_sequence_position_and_pages():
    (step,) = _steps(is_causal=True, lengths=[3, 70])
    first, second = step
    batch = make_batch([first.taken(1, 3), second.taken(64, 70)], np.array([0, 7], np.int32))
    assert batch.token_ids.tolist() == [1, 2, 64, 65, 66, 67, 68, 69]
    assert batch.positions.tolist() == [1, 2, 64, 65, 66, 67, 68, 69]
    assert batch.sequences.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert batch.page_tables.tolist() == [[0, 0], [1, 2]]
    assert batch.output_rows.tolist() == [0, 7]
    arrays = (batch.token_ids, batch.positions, batch.sequences, batch.page_tables, batch.output_rows)
    assert all(array.dtype == np.int32 for array in arrays)
