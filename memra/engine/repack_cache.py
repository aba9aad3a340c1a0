"""The repack cache: a folder of files with the repacked weights of models, so that a later start has nothing to do.

Trade: finding, building and evicting files, also beside other processes that do the same. A file is written under
another name, which its writer keeps locked, and renamed when it is whole and on the disk; what holds no lock was left
behind by a dead process and goes. Whatever the folder does, the model is served: a cache that cannot be used is one
line in the log. Refuses to know what tiles are (`memra.engine.repack_file`) and how they are made (the caller).
"""

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memra.engine.repack_file import FILE_SUFFIX, FileLayout, Matrix, Tiles, TileWriter, open_tiles

log = logging.getLogger(__name__)

_PART_SUFFIX = ".memra-part"
_MIB = 1 << 20

Repack = Callable[[Matrix, NDArray[np.uint8]], None]
"""Writes the tiles of a matrix into uint8 `[num_bytes]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepackCache:
    """Where the tiles of one model are kept.

    Attributes:
        folder: made when it is needed; nobody but memra may write there.
        limit_bytes: of all files together; those unused for the longest time go first.
        identity: of the model's files: another word means that the weights may be others.
    """

    folder: Path
    limit_bytes: int
    identity: str

    def load(self, matrices: Sequence[Matrix], repack: Repack) -> Tiles | None:
        """Map the tiles of all matrices, which are repacked only when there is no file of them yet.

        Args:
            matrices: of the model, in the order of their use.
            repack: called once for each when a file is built; its errors leave the folder as it was.

        Returns:
            None when the folder or the limit does not allow a file.
        """
        layout = FileLayout.of(self.identity, matrices)
        path = self.folder / layout.file_name
        try:
            tiles = self._open(path, layout)
            return self._build(path, layout, matrices, repack) if tiles is None else tiles
        except OSError as error:
            reason = error.strerror or str(error)
            log.warning("the repack cache %s cannot be used (%s); weights are repacked in memory", self.folder, reason)
            return None

    def _open(self, path: Path, layout: FileLayout) -> Tiles | None:
        try:
            tiles = open_tiles(path, layout)
        except PermissionError as error:
            log.warning("%s cannot be read (%s) and is made again", path, error.strerror)
            return None
        if tiles is None and path.exists():
            log.warning("%s is damaged or no file of memra's and is made again", path)
        if tiles is not None:
            with suppress(OSError):  # a folder that may only be read serves as well
                os.utime(path)
        return tiles

    def _build(self, path: Path, layout: FileLayout, matrices: Sequence[Matrix], repack: Repack) -> Tiles | None:
        if layout.num_bytes > self.limit_bytes:
            log.warning(
                "repacked weights of %d MiB are not kept: MEMRA_REPACK_CACHE_MB allows %d",
                -(-layout.num_bytes // _MIB),
                self.limit_bytes // _MIB,
            )
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()
        self._evict(path, layout.num_bytes)
        with _part_file(self.folder) as (part, descriptor):
            os.posix_fallocate(descriptor, 0, layout.num_bytes)
            _write_all(descriptor, layout, matrices, repack)
            os.fsync(descriptor)
            tiles = open_tiles(path, layout)  # another process may have been faster: share its pages
            if tiles is None:
                part.replace(path)
                tiles = layout.map(descriptor)
        log.info("repacked weights are kept in %s", path)
        return tiles

    def _remove_abandoned(self) -> None:
        """Remove what processes left behind that died while they wrote."""
        for part in self.folder.glob(f"*{_PART_SUFFIX}"):
            with suppress(OSError), part.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()

    def _evict(self, path: Path, num_bytes: int) -> None:
        """Remove the files that were unused for the longest time until `num_bytes` more fit.

        A process that has one of them mapped keeps it until it ends.
        """
        kept: list[tuple[int, int, Path]] = []
        for other in self.folder.glob(f"*{FILE_SUFFIX}"):
            with suppress(FileNotFoundError):
                status = other.stat()
                kept.append((status.st_mtime_ns, status.st_size, other))
        excess = sum(size for _, size, other in kept if other != path) + num_bytes - self.limit_bytes
        for _, size, other in sorted(kept):
            if excess <= 0:
                break
            if other != path:
                other.unlink(missing_ok=True)
                log.info("%s was evicted from the repack cache", other)
                excess -= size


@contextmanager
def _part_file(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file, locked for as long as it is open, whose name is gone at the end unless it was given another."""
    part, descriptor = _create_locked(folder)
    while os.fstat(descriptor).st_nlink == 0:  # another process took it for abandoned before it was locked
        os.close(descriptor)
        part, descriptor = _create_locked(folder)
    try:
        yield part, descriptor
    finally:
        part.unlink(missing_ok=True)
        os.close(descriptor)


def _create_locked(folder: Path) -> tuple[Path, int]:
    part = folder / f"{secrets.token_hex(8)}{_PART_SUFFIX}"
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        part.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return part, descriptor


def _write_all(descriptor: int, layout: FileLayout, matrices: Sequence[Matrix], repack: Repack) -> None:
    memory = np.empty(max((matrix.num_bytes for matrix in matrices), default=0), np.uint8)
    writer = TileWriter(descriptor)
    writer.write(layout.header)
    for matrix in matrices:
        tiles = memory[: matrix.num_bytes]
        repack(matrix, tiles)
        if matrix.has_tiles:
            writer.pad(layout.places[matrix.name][0])
            writer.write(tiles)
    writer.pad(layout.num_bytes)
    writer.flush()
