from collections.abc import Callable
from typing import Any

from memra.engine.row_batches import RowBatchBuilder, RowSpan
from memra.engine.sequence import PageLease, Sequence


def _start(request: Any, page_ids: tuple[int, ...], num_cached_tokens: int = 0) -> Sequence:
    sequence = Sequence(request, context_tokens=64)
    sequence.start(PageLease(page_ids, num_cached_tokens))
    return sequence


def test_spans_become_contiguous_rows_with_their_pages(
    make_model: Callable[..., Any], make_request: Callable[..., Any]
):
    builder = RowBatchBuilder(make_model())
    decoding = _start(make_request("a", range(20, 26), 10), (9, 3, 7, 5))
    decoding.mark_computed(6)
    decoding.append(31)
    begun = _start(make_request("b", range(10, 20), 10), (1, 2, 4, 6, 8), num_cached_tokens=8)
    fresh = _start(make_request("c", (1, 2, 3), 10), (10, 11, 12, 13))
    batch = builder.build([RowSpan(decoding, 1, True), RowSpan(begun, 2, True), RowSpan(fresh, 2, False)])
    assert batch.token_ids.tolist() == [31, 18, 19, 1, 2]
    assert batch.positions.tolist() == [6, 8, 9, 0, 1]
    assert batch.sequences.tolist() == [0, 1, 1, 2, 2]
    assert batch.output_rows.tolist() == [0, 2]
    assert batch.page_tables.tolist() == [[9, 3, 0], [1, 2, 4], [10, 0, 0]]


def test_nothing_of_the_last_batch_is_left_in_the_next(
    make_model: Callable[..., Any], make_request: Callable[..., Any], fake_executor: Callable[..., Any]
):
    executor = fake_executor()
    builder = RowBatchBuilder(make_model(executor))
    first = _start(make_request("a", range(30), 2), tuple(range(20, 28)))
    executor.run(builder.build([RowSpan(first, 30, True)]))
    second, third = (_start(make_request(name, (1, 2), 2), (page,)) for name, page in (("b", 1), ("c", 2)))
    batch = builder.build([RowSpan(second, 2, True), RowSpan(third, 1, False)])
    executor.run(batch)
    assert batch.page_tables.tolist() == [[1], [2]]
    assert batch.output_rows.tolist() == [1]


def test_the_widest_step_fits(
    make_model: Callable[..., Any], make_request: Callable[..., Any], fake_executor: Callable[..., Any]
):
    executor = fake_executor(num_pages=200)
    builder = RowBatchBuilder(make_model(executor, max_rows=3, prefill_chunk_tokens=60))
    decoding = []
    for index in range(2):
        sequence = _start(make_request("d", [1] * 62, 2), tuple(range(16 * index, 16 * index + 16)))
        sequence.mark_computed(62)
        sequence.append(1)
        decoding.append(RowSpan(sequence, 1, True))
    prompt = RowSpan(_start(make_request("p", [2] * 61, 2), tuple(range(100, 116))), 60, False)
    batch = builder.build([*decoding, prompt])
    assert batch.page_tables.shape == (3, 16)
    executor._check(batch)
