"""Large files read and written in aligned pieces of 4 MiB, through the system's page cache or past it.

Trade: the same bytes in the same places whichever way they went, and an error, never another way, where a file system
cannot go past its cache. Refuses to know what the bytes mean: `memra.engine.prefix_handoff` calls it.
"""

import errno
import fcntl
import io
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memra.errors import HandoffError

ALIGNMENT = 4096
"""What O_DIRECT wants of offsets, lengths and addresses on every common device (`open(2)`)."""

BUFFER_BYTES = 4 << 20


def open_descriptor(path: Path, flags: int, *, is_direct: bool) -> int:
    """Open a file, past the page cache if wanted.

    Raises:
        HandoffError: the file system has no such way.
        OSError: the file cannot be opened.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | (os.O_DIRECT if is_direct else 0), 0o600)
    except OSError as error:
        if is_direct and error.errno == errno.EINVAL:
            raise HandoffError(
                f"MEMRA_KV_HOST_HANDOFF_IO=direct: the file system of {path} has no O_DIRECT; set it to buffered"
            ) from error
        raise


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Say which file an error is about, and turn the system's errors into our own.

    Raises:
        HandoffError: in place of it and of OSError.
    """
    try:
        yield
    except OSError as error:
        raise HandoffError(f"hand-off file {path}: {error.strerror or error}") from error
    except HandoffError as error:
        raise HandoffError(f"hand-off file {path}: {error.message}") from error


class BlockWriter:
    """Writes a new file from its beginning to its end, and its head once more when the rest is known."""

    def __init__(self, path: Path, *, is_direct: bool) -> None:
        """Make the file, readable for its owner only; one of that name is replaced.

        Raises:
            HandoffError: the file system has no O_DIRECT.
            OSError: it cannot be made.
        """
        path.unlink(missing_ok=True)
        self._descriptor = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, is_direct=is_direct)
        self._is_direct = is_direct
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # anonymous mappings begin at a page
        self._filled = self._written = 0
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        with memoryview(data) as view:
            place = 0
            while place < len(view):
                size = min(len(view) - place, BUFFER_BYTES - self._filled)
                self._buffer[self._filled : self._filled + size] = view[place : place + size]
                self._filled += size
                place += size
                if self._filled == BUFFER_BYTES:
                    self._flush(BUFFER_BYTES)

    def finish(self, head: bytes) -> None:
        """Write out what is left, put `head` over the file's first bytes, and wait until all of it is on the disk.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        num_bytes = self._written + self._filled
        padding = -self._filled % ALIGNMENT if self._is_direct else 0
        self._buffer[self._filled : self._filled + padding] = bytes(padding)
        self._flush(self._filled + padding)
        if self._is_direct:
            os.ftruncate(self._descriptor, num_bytes)
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, 0)  # the head has no aligned length
        os.pwrite(self._descriptor, head, 0)
        os.fdatasync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Close the file as it is; a second time does nothing."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
            self._buffer.close()

    def _flush(self, num_bytes: int) -> None:
        with memoryview(self._buffer) as view:
            place = 0
            while place < num_bytes:
                with view[place:num_bytes] as rest:
                    place += os.pwrite(self._descriptor, rest, self._written + place)
        self._written += num_bytes
        self._filled = 0


class BlockReader(io.RawIOBase):
    """Reads a file in aligned pieces; to be wrapped in `io.BufferedReader`. Owns its descriptor."""

    def __init__(self, descriptor: int, num_bytes: int) -> None:
        """Begin at offset 0 of a file of `num_bytes`; memory is taken for no more than the file has."""
        super().__init__()
        self._descriptor = descriptor
        size = min(BUFFER_BYTES, max(1, -(-num_bytes // ALIGNMENT)) * ALIGNMENT)
        self._buffer = mmap.mmap(-1, size)
        self._position = self._start = self._end = 0

    def readable(self) -> bool:
        """As every reader."""
        return True

    def seekable(self) -> bool:
        """A frame that is not wanted is stepped over."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to an offset from the beginning or from the current place."""
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        """Offset of the next byte."""
        return self._position

    def readinto(self, target: Any, /) -> int:
        """Fill a buffer as far as one piece goes; 0 at the end of the file.

        Raises:
            OSError: the file cannot be read.
        """
        if not self._start <= self._position < self._end:
            self._load()
        size = max(0, min(len(target), self._end - self._position))
        place = self._position - self._start
        with memoryview(self._buffer) as view:
            target[:size] = view[place : place + size]
        self._position += size
        return size

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if not self.closed:
            os.close(self._descriptor)
            self._buffer.close()
        super().close()

    def _load(self) -> None:
        self._start = self._end = self._position - self._position % ALIGNMENT
        with memoryview(self._buffer) as view:
            self._end += os.preadv(self._descriptor, [view], self._start)
