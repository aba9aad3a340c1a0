"""Threads, batches and their errors: nothing is written for a bad batch, nothing survives close, fork is refused."""

import multiprocessing
import threading
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import build_native, native, native_library

from tests.kernels.native.test_linear_kernels import one_matrix


def batch(**changes: object) -> native.Batch:
    zero = np.zeros(1, np.int32)
    values = {"token_ids": zero, "positions": zero, "sequences": zero, "output_rows": zero}
    values |= {"page_tables": np.zeros((1, 1), np.int32), **changes}
    return native.Batch(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token_ids": np.array([16 * 3], np.int32)}, "vocabulary"),
        ({"token_ids": np.array([-1], np.int32)}, "vocabulary"),
        ({"positions": np.array([64], np.int32)}, "page table"),
        ({"positions": np.array([-1], np.int32)}, "page table"),
        ({"sequences": np.array([1], np.int32)}, "sequence"),
        ({"page_tables": np.array([[1]], np.int32)}, "page that does not exist"),
        ({"output_rows": np.array([1], np.int32)}, "output row"),
        ({"token_ids": np.zeros(0, np.int32)}, "rows"),
    ],
)
def test_a_bad_batch_is_refused_in_words(pool: native.ThreadPool, changes: dict[str, object], words: str):
    matrix = one_matrix(pool, "scalar", "Q8_0")
    with pytest.raises(native.NativeError, match=words):
        matrix.plan.run(batch(**changes))
    matrix.plan.close()


def test_a_closed_plan_and_pool_say_so():
    pool = native.ThreadPool(1)
    plan = native.Plan(pool, variant="scalar", max_rows=1)
    plan.close()
    plan.close()
    pool.close()
    pool.close()
    with pytest.raises(native.NativeError, match="closed"):
        plan.buffer(16)
    with pytest.raises(native.NativeError, match="closed"):
        native.Plan(pool, variant="scalar", max_rows=1)


def test_an_unknown_variant_and_a_thread_count_of_zero_are_refused(pool: native.ThreadPool):
    with pytest.raises(native.NativeError, match="no variant sse9"):
        native.Plan(pool, variant="sse9", max_rows=1)
    with pytest.raises(native.NativeError, match="threads"):
        native.ThreadPool(0)


def test_more_threads_than_cores_run_many_steps_and_leave_no_thread_behind():
    before = len(_native_threads())
    pool = native.ThreadPool(9)
    matrix = one_matrix(pool, native.usable_variants()[0], "Q4_1")
    wanted = matrix.outputs([1, 2, 3])
    for _ in range(300):
        assert np.array_equal(matrix.outputs([1, 2, 3]), wanted)
    matrix.plan.close()
    pool.close()
    assert len(_native_threads()) == before


def test_two_plans_share_one_pool_in_turn(pool: native.ThreadPool):
    first = one_matrix(pool, native.usable_variants()[0], "Q4_1")
    second = one_matrix(pool, native.usable_variants()[0], "Q6_K")
    wanted = first.outputs([1]), second.outputs([2, 3])
    for _ in range(200):
        assert np.array_equal(first.outputs([1]), wanted[0])
        assert np.array_equal(second.outputs([2, 3]), wanted[1])
    first.plan.close()
    assert np.array_equal(second.outputs([2, 3]), wanted[1])
    second.plan.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on(pool: native.ThreadPool):
    matrix = one_matrix(pool, "scalar", "Q8_0")
    wanted = matrix.outputs([1])
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        try:
            matrix.outputs([1])
            sender.send("ran")
        except native.NativeError as error:
            sender.send(str(error))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert "fork" in receiver.recv()
    process.join()
    receiver.close()
    sender.close()
    assert np.array_equal(matrix.outputs([1]), wanted)
    matrix.plan.close()


def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build_native, "source_digest", lambda: "0" * 16)
    native.library.cache_clear()
    with pytest.raises(native.NativeUnavailableError, match="other sources"):
        native.library()
    native.library.cache_clear()


class _OldLibrary:
    """Has a digest and nothing else, as a library that was built before the other functions were written."""

    def __init__(self, _: str) -> None:
        self.memra_source_digest = lambda: b"0123456789abcdef"


def test_a_library_that_lacks_functions_is_refused_for_its_sources_and_not_for_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(native_library.ctypes, "CDLL", _OldLibrary)
    path = tmp_path / "old.so"
    path.touch()
    with pytest.raises(native.NativeUnavailableError, match="other sources"):
        native_library.library(path)
    monkeypatch.setattr(build_native, "source_digest", lambda: "0123456789abcdef")
    with pytest.raises(AttributeError, match="memra_error"):  # the digest is all that keeps such a library out
        native_library.library(path)


def test_a_library_that_is_not_there_or_does_not_load_names_the_remedy(tmp_path: Path):
    path = tmp_path / "none.so"
    with pytest.raises(native.NativeUnavailableError, match="not built: build it with"):
        native_library.library(path)
    path.write_bytes(b"no library")
    with pytest.raises(native.NativeUnavailableError, match=r"does not load \(.*\): build it with"):
        native_library.library(path)


def test_codebooks_of_another_size_are_refused_after_the_sources_were_found_right(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native_library, "grid_levels", lambda: np.zeros(3, np.uint8))
    native.library.cache_clear()
    with pytest.raises(native.NativeUnavailableError, match="package gguf does not fit"):
        native.library()
    native.library.cache_clear()


def _native_threads() -> set[int]:
    assert threading.active_count() >= 1
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}
