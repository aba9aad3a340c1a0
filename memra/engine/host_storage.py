"""Where the bytes of the host tier physically lie: a file without a name, or pieces of pinned memory.

Trade: write anywhere, read anywhere, and an exception when the system gives no more. Refuses to know blobs and limits:
`memra.engine.host_store` does.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memra.errors import ConfigurationError

SLAB_BYTES = 64 << 20
"""Pinned memory is taken in pieces: one call for each blob would cost milliseconds, and torch rounds each call up to a
power of two."""


class Storage(Protocol):
    """A stretch of bytes that can be written and read anywhere.

    Attributes:
        noun: what messages call it.
    """

    noun: str

    def write(self, offset: int, data: bytes) -> None:
        """Keep bytes.

        Raises:
            OSError: the storage has failed.
            MemoryError: the storage has failed.
        """
        ...

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Return bytes that were written.

        Raises:
            OSError: they cannot be had.
        """
        ...

    def trim(self) -> None:
        """Nothing is stored any more: give back what can be given back cheaply."""
        ...

    def close(self) -> None:
        """Give everything back; a second time does nothing."""
        ...


class FileStorage:
    """A file that has no name, so that it is gone with the process."""

    def __init__(self, directory: Path | None, pwrite: Callable[[int, memoryview, int], int]) -> None:
        """Make it in a folder; None: the system's for temporary files.

        Raises:
            ConfigurationError: no file can be made there.
        """
        where = directory or Path(tempfile.gettempdir())
        self.noun = f"the host tier's file in {where}"
        self._pwrite = pwrite
        try:
            self._file = tempfile.TemporaryFile(dir=where, buffering=0)  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise ConfigurationError(
                f"MEMRA_KV_HOST_DIR: no file can be made in {where}: {error.strerror}; name another folder"
            ) from error

    def write(self, offset: int, data: bytes) -> None:
        """As the protocol says."""
        rest = memoryview(data)
        while rest:
            size = self._pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[size:], offset + size

    def read(self, offset: int, num_bytes: int) -> bytes:
        """As the protocol says."""
        data = os.pread(self._file.fileno(), num_bytes, offset)
        while len(data) < num_bytes:  # the system reads at most 2 GiB at once
            more = os.pread(self._file.fileno(), num_bytes - len(data), offset + len(data))
            if not more:
                raise OSError(f"the file ends {num_bytes - len(data)} bytes early")
            data += more
        return data

    def trim(self) -> None:
        """Give the disk back."""
        with suppress(OSError):  # the space is given back later, then
            os.ftruncate(self._file.fileno(), 0)

    def close(self) -> None:
        """As the protocol says."""
        self._file.close()


class PinnedStorage:
    """Pieces of pinned memory that count as one stretch; each is taken when it is first written to."""

    noun = "the host tier's pinned memory"

    def __init__(self, allocate: Callable[[int], NDArray[np.uint8]] | None, slab_bytes: int) -> None:
        """Take nothing yet; `allocate` gives a piece or raises MemoryError or RuntimeError, None is torch's."""
        self._allocate = allocate or _allocate_pinned
        self._slab_bytes = slab_bytes
        self._slabs: list[NDArray[np.uint8]] = []

    def write(self, offset: int, data: bytes) -> None:
        """As the protocol says."""
        try:
            while len(self._slabs) * self._slab_bytes < offset + len(data):
                self._slabs.append(self._allocate(self._slab_bytes))
        except RuntimeError as error:  # how torch says that the driver gives no memory
            raise MemoryError(str(error).partition("\n")[0]) from error
        source = np.frombuffer(data, np.uint8)
        for place, piece in self._pieces(offset, len(data)):
            piece[:] = source[place : place + len(piece)]

    def read(self, offset: int, num_bytes: int) -> bytes:
        """As the protocol says."""
        return b"".join(piece.data for _, piece in self._pieces(offset, num_bytes))

    def trim(self) -> None:
        """Keep the slabs: taking them again is what costs."""

    def close(self) -> None:
        """As the protocol says."""
        self._slabs.clear()

    def _pieces(self, offset: int, num_bytes: int) -> list[tuple[int, NDArray[np.uint8]]]:
        """The parts of a stretch, each within one slab, with their places in it."""
        pieces, place = [], 0
        while place < num_bytes:
            slab, start = divmod(offset + place, self._slab_bytes)
            piece = self._slabs[slab][start : start + num_bytes - place]
            pieces.append((place, piece))
            place += len(piece)
        return pieces


def _allocate_pinned(num_bytes: int) -> NDArray[np.uint8]:
    import torch  # noqa: PLC0415  (slow to import, and needed beside a GPU only)

    array: NDArray[np.uint8] = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return array
