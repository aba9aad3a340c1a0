"""Both stores give back what was put, stay under their limit, and end quietly when their storage fails."""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from memra.engine.extents import BLOCK_BYTES
from memra.engine.host_store import BlobHandle, FileStore, HostStore, PinnedStore
from memra.errors import ConfigurationError, IntegrityError, LostBlobError

LIMIT = 16 * BLOCK_BYTES


def _file(**options: Any) -> FileStore:
    return FileStore(LIMIT, **options)


def _pinned(**options: Any) -> PinnedStore:
    return PinnedStore(
        LIMIT, slab_bytes=4 * BLOCK_BYTES, allocate=lambda size: np.full(size, 0xAA, np.uint8), **options
    )


@pytest.fixture(params=[_file, _pinned])
def make_store(request: pytest.FixtureRequest):
    made: list[HostStore] = []

    def make(**options: Any) -> HostStore:
        made.append(request.param(**options))
        return made[-1]

    yield make
    for store in made:
        store.close()


class StoreMachine(RuleBasedStateMachine):
    """A store against a dict."""

    handles: Bundle[BlobHandle] = Bundle("handles")
    make: Callable[[], HostStore]

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make()
        self.kept: dict[BlobHandle, bytes] = {}

    @rule(target=handles, size=st.integers(0, 6 * BLOCK_BYTES), seed=st.integers(0, 255))
    def put(self, size: int, seed: int):
        data = np.random.default_rng(seed).bytes(size)
        handle = self.store.put(data)
        if handle is None:
            blocks = max(1, -(-size // BLOCK_BYTES))
            assert self.store.num_bytes + blocks * BLOCK_BYTES > LIMIT or len(self.kept) > 1, "refused without need"
            return BlobHandle(0, 0)
        assert handle not in self.kept
        self.kept[handle] = data
        return handle

    @rule(handle=handles)
    def get(self, handle: BlobHandle):
        if handle in self.kept:
            assert self.store.get(handle) == self.kept[handle]
        else:
            with pytest.raises(IntegrityError):
                self.store.get(handle)

    @rule(handle=consumes(handles))
    def free(self, handle: BlobHandle):
        if self.kept.pop(handle, None) is None:
            with pytest.raises(IntegrityError):
                self.store.free(handle)
        else:
            self.store.free(handle)

    @rule()
    def free_everything(self):
        for handle in self.kept:
            self.store.free(handle)
        self.kept.clear()
        assert self.store.num_bytes == 0
        whole = self.store.put(bytes(LIMIT))
        assert whole is not None
        self.store.free(whole)

    @invariant()
    def agrees(self):
        self.store.check_integrity()
        assert self.store.num_blobs == len(self.kept)
        assert sum(map(len, self.kept.values())) <= self.store.num_bytes <= self.store.limit_bytes == LIMIT
        assert self.store.is_on

    def teardown(self):
        for handle, data in self.kept.items():
            assert self.store.get(handle) == data
        self.store.close()


class FileMachine(StoreMachine):
    make = staticmethod(lambda: _file(is_verified=True))


class PinnedMachine(StoreMachine):
    make = staticmethod(_pinned)


TestFileMachine = FileMachine.TestCase
TestPinnedMachine = PinnedMachine.TestCase
TestFileMachine.settings = TestPinnedMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


def _flip(store: HostStore, offset: int) -> None:
    if isinstance(store, FileStore):
        descriptor = store._storage._file.fileno()
        os.pwrite(descriptor, bytes([os.pread(descriptor, 1, offset)[0] ^ 1]), offset)
    else:
        store._storage._slabs[0][offset] ^= 1


def test_verification_finds_a_flipped_byte_and_the_handle_can_still_be_freed(make_store):
    store = make_store(is_verified=True)
    handle = store.put(bytes(3 * BLOCK_BYTES))
    _flip(store, 2 * BLOCK_BYTES)
    with pytest.raises(LostBlobError, match="came back changed"):
        store.get(handle)
    store.free(handle)
    store.check_integrity()
    assert store.num_bytes == 0
    assert store.is_on


def test_without_verification_nothing_is_compared(make_store):
    store = make_store()
    handle = store.put(bytes(10))
    _flip(store, 3)
    assert store.get(handle) == bytes(3) + b"\x01" + bytes(6)


def test_a_file_that_became_shorter_loses_its_blobs():
    store = _file()
    handle = store.put(bytes(2 * BLOCK_BYTES))
    os.ftruncate(store._storage._file.fileno(), BLOCK_BYTES)
    with pytest.raises(LostBlobError, match="ends 4096 bytes early"):
        store.get(handle)
    store.close()


def test_the_file_has_no_name_and_shrinks_when_nothing_is_left(tmp_path: Path):
    store = _file(directory=tmp_path)
    handles = [store.put(bytes(BLOCK_BYTES)) for _ in range(3)]
    descriptor = store._storage._file.fileno()
    assert (list(tmp_path.iterdir()), os.fstat(descriptor).st_size) == ([], 3 * BLOCK_BYTES)
    for handle in handles:
        store.free(handle)
    assert os.fstat(descriptor).st_size == 0
    store.close()


def test_a_full_disk_turns_the_store_off_with_one_line_and_keeps_what_is_in(caplog: pytest.LogCaptureFixture):
    num_writes = 0

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal num_writes
        num_writes += 1
        if num_writes > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(descriptor, data[:BLOCK_BYTES], offset)  # a short write is no error

    store = _file(pwrite=pwrite)
    kept = store.put(bytes(BLOCK_BYTES) + b"tail")
    with caplog.at_level(logging.INFO):
        assert [store.put(b"x") for _ in range(3)] == [None, None, None]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "No space left on device" in caplog.text
    assert not store.is_on
    assert num_writes == 3
    assert store.get(kept) == bytes(BLOCK_BYTES) + b"tail"
    store.free(kept)
    store.check_integrity()
    assert store.put(b"x") is None
    store.close()


def test_pinned_memory_that_is_refused_turns_the_store_off(caplog: pytest.LogCaptureFixture):
    slabs = [np.zeros(4 * BLOCK_BYTES, np.uint8)]

    def allocate(size: int) -> np.ndarray:
        if not slabs:
            raise RuntimeError("CUDA error: out of memory\nlong advice")
        return slabs.pop()

    store = PinnedStore(LIMIT, slab_bytes=4 * BLOCK_BYTES, allocate=allocate)
    kept = store.put(b"first")
    assert store.put(bytes(4 * BLOCK_BYTES)) is None
    assert [record.getMessage().count("CUDA error: out of memory;") for record in caplog.records] == [1]
    assert (store.is_on, store.get(kept), store.num_blobs) == (False, b"first", 1)
    store.check_integrity()


def test_a_pinned_blob_may_lie_across_pieces_and_the_limit_is_whole_pieces():
    store = PinnedStore(LIMIT - 1, slab_bytes=4 * BLOCK_BYTES, allocate=lambda size: np.zeros(size, np.uint8))
    assert store.limit_bytes == 12 * BLOCK_BYTES
    data = np.random.default_rng(1).bytes(10 * BLOCK_BYTES + 5)
    handle = store.put(data)
    assert handle is not None
    assert store.get(handle) == data


def test_a_closed_store_takes_nothing_and_may_be_closed_again(make_store):
    store = make_store()
    handle = store.put(b"x")
    store.close()
    store.close()
    assert (store.put(b"y"), store.is_on, store.num_blobs, store.num_bytes) == (None, False, 0, 0)
    with pytest.raises(IntegrityError):
        store.get(handle)


def test_a_folder_that_is_not_there_is_refused_by_the_settings_name(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"MEMRA_KV_HOST_DIR: .*absent"):
        _file(directory=tmp_path / "absent")


@pytest.mark.parametrize("damage", [lambda s: s._extents.allocate(1), lambda s: s._blobs.popitem()])
def test_blobs_that_do_not_match_the_extents_are_found(make_store, damage):
    store = make_store()
    store.put(b"x")
    damage(store)
    with pytest.raises(IntegrityError):
        store.check_integrity()


def test_pinned_memory_is_torchs_where_there_is_a_device_and_refused_where_there_is_none():
    store = PinnedStore(LIMIT, slab_bytes=LIMIT)
    handle = store.put(b"page")
    assert store.is_on == torch.cuda.is_available() == (handle is not None)
    assert handle is None or store.get(handle) == b"page"
    store.close()
