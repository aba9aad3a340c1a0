"""Where evicted cache entries lie until they are wanted: blobs of bytes under a limit, in a file or in pinned memory.

Trade: bytes in, the same bytes out, never more than the limit, and an end without noise when the storage fails. Refuses
to know what a blob holds, whose it is and which one is old: the prefix tree decides who comes in and who goes. Used by
the worker's thread alone; writes, reads and digests of whole pages run without the interpreter's lock.

Blobs are stored as they are. Compression was measured on 64-token pages of three real models (SmolLM2 135M, Qwen2.5
Coder 0.5B, Gemma 3 270M; a page of 0.8 to 1.5 MB in f16): zlib at level 1 saves 6 to 8 % at 44 to 51 MiB/s, with the
bytes of the halves sorted apart first 12 to 13 % at 50 MiB/s, and in q8_0 6 to 8 % either way. Any disk writes the
eighth that is saved in less time than that, so nothing is gained. SHA-256 runs at 1,850 MiB/s there, BLAKE2b at 1,020.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memra.engine.extents import ExtentMap
from memra.engine.host_storage import SLAB_BYTES, FileStorage, PinnedStorage, Storage
from memra.errors import IntegrityError, LostBlobError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BlobHandle:
    """A claim on one blob in one store, good until it is freed.

    Attributes:
        serial: tells blobs apart; never used twice by one store.
        num_bytes: length of what was put.
    """

    serial: int
    num_bytes: int


class HostStore(Protocol):
    """Bounded storage for blobs."""

    def put(self, data: bytes) -> BlobHandle | None:
        """Keep a copy; None when there is no room (after a `free` there may be), or the store is off (for good)."""
        ...

    def get(self, handle: BlobHandle) -> bytes:
        """Return what was put.

        Raises:
            LostBlobError: it cannot be read, or its digest differs; the handle is still to be freed.
            IntegrityError: the handle is not one of this store's, or was freed.
        """
        ...

    def free(self, handle: BlobHandle) -> None:
        """Let go of a blob.

        Raises:
            IntegrityError: the handle is not one of this store's, or was freed.
        """
        ...

    @property
    def num_bytes(self) -> int:
        """Storage in use, bytes; a blob counts in whole blocks of 4,096."""
        ...

    @property
    def limit_bytes(self) -> int:
        """The most that `num_bytes` can come to."""
        ...

    @property
    def num_blobs(self) -> int:
        """Blobs that are kept."""
        ...

    @property
    def is_on(self) -> bool:
        """Whether `put` may still succeed; once False, False for good. Blobs that are kept stay readable."""
        ...

    def close(self) -> None:
        """Give the storage back; every blob is gone."""
        ...

    def check_integrity(self) -> None:
        """Raise unless blobs and storage agree.

        Raises:
            IntegrityError: names the contradiction.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Blob:
    offset: int
    digest: bytes | None


class _BlobStore:
    """What both stores have in common: which blob lies where, digests, and the latch."""

    def __init__(self, storage: Storage, *, limit_bytes: int, is_verified: bool) -> None:
        self._storage = storage
        self._extents = ExtentMap(limit_bytes)
        self._is_verified = is_verified
        self._blobs: dict[BlobHandle, _Blob] = {}
        self._num_puts = 0
        self._is_on = True

    def put(self, data: bytes) -> BlobHandle | None:
        """As the protocol says."""
        offset = self._extents.allocate(len(data)) if self._is_on else None
        if offset is None:
            return None
        try:
            self._storage.write(offset, data)
        except (OSError, MemoryError) as error:
            self._extents.free(offset)
            self._latch_off(error)
            return None
        self._num_puts += 1
        handle = BlobHandle(self._num_puts, len(data))
        self._blobs[handle] = _Blob(offset, _digest(data) if self._is_verified else None)
        return handle

    def get(self, handle: BlobHandle) -> bytes:
        """As the protocol says."""
        blob = self._find(handle)
        try:
            data = self._storage.read(blob.offset, handle.num_bytes)
        except OSError as error:
            raise LostBlobError(f"{self._storage.noun}: {handle.num_bytes} bytes cannot be read: {error}") from error
        if blob.digest is not None and _digest(data) != blob.digest:
            raise LostBlobError(f"{self._storage.noun}: {handle.num_bytes} bytes came back changed")
        return data

    def free(self, handle: BlobHandle) -> None:
        """As the protocol says."""
        blob = self._find(handle)
        del self._blobs[handle]
        self._extents.free(blob.offset)
        if not self._blobs:
            self._storage.trim()

    @property
    def num_bytes(self) -> int:
        """As the protocol says."""
        return self._extents.num_held_bytes

    @property
    def limit_bytes(self) -> int:
        """As the protocol says."""
        return self._extents.num_bytes

    @property
    def num_blobs(self) -> int:
        """As the protocol says."""
        return len(self._blobs)

    @property
    def is_on(self) -> bool:
        """As the protocol says."""
        return self._is_on

    def close(self) -> None:
        """As the protocol says; a second time does nothing."""
        self._is_on = False
        self._blobs.clear()
        self._extents = ExtentMap(self._extents.num_bytes)
        self._storage.close()

    def check_integrity(self) -> None:
        """As the protocol says; digests are not read."""
        self._extents.check_integrity()
        if len({blob.offset for blob in self._blobs.values()}) != self._extents.num_held:
            raise IntegrityError(f"{len(self._blobs)} blobs lie in {self._extents.num_held} extents")
        if self.num_bytes < sum(handle.num_bytes for handle in self._blobs):
            raise IntegrityError(f"{self.num_bytes} bytes of storage are less than their blobs")

    def _find(self, handle: BlobHandle) -> _Blob:
        blob = self._blobs.get(handle)
        if blob is None:
            raise IntegrityError(f"blob {handle.serial} is not in the host tier")
        return blob

    def _latch_off(self, error: Exception) -> None:
        self._is_on = False
        log.error(
            "%s failed with %d of %d MiB in use: %s; nothing more is moved there until the server is restarted",
            self._storage.noun,
            self.num_bytes >> 20,
            self.limit_bytes >> 20,
            str(error) or type(error).__name__,
        )


class FileStore(_BlobStore):
    """Blobs in one file without a name, which is gone with the process; for models that lie in memory themselves."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        directory: Path | None = None,
        is_verified: bool = False,
        pwrite: Callable[[int, memoryview, int], int] = os.pwrite,
    ) -> None:
        """Make an empty file.

        Args:
            limit_bytes: the most that the file may grow to.
            directory: where it lies; None: the system's folder for temporary files.
            is_verified: whether a digest is kept and compared.
            pwrite: writes a part of a buffer to a descriptor at an offset, and returns how much.

        Raises:
            ConfigurationError: no file can be made there.
        """
        super().__init__(FileStorage(directory, pwrite), limit_bytes=limit_bytes, is_verified=is_verified)


class PinnedStore(_BlobStore):
    """Blobs in page-locked memory, from where a GPU copies without a detour; taken piece by piece, as it is needed."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        is_verified: bool = False,
        allocate: Callable[[int], NDArray[np.uint8]] | None = None,
        slab_bytes: int = SLAB_BYTES,
    ) -> None:
        """Take nothing yet.

        Args:
            limit_bytes: the most that is taken, rounded down to whole pieces, of which one is always allowed.
            is_verified: whether a digest is kept and compared.
            allocate: gives an array of so many bytes, or raises MemoryError or RuntimeError; None: torch's pinned
                memory.
            slab_bytes: size of a piece.
        """
        storage = PinnedStorage(allocate, slab_bytes)
        limit_bytes = max(slab_bytes, limit_bytes - limit_bytes % slab_bytes)
        super().__init__(storage, limit_bytes=limit_bytes, is_verified=is_verified)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
