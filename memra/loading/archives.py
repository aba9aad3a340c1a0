"""Files out of wheels and source packages, one after another, without trusting a path in them.

Called by `packages`. Knows zip and tar, and refuses to unpack links, devices and paths that lead outside.
"""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final

from memra.errors import SourceError

DAMAGE: Final = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
"""What reading a damaged archive raises, besides OSError; zipfile has RuntimeError for encrypted members."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One regular file of an archive.

    Attributes:
        path: relative, with forward slashes; without the top folder that every source package has.
        open: gives the contents; only valid while the iteration stands at this file.
    """

    path: str
    size_bytes: int
    open: Callable[[], IO[bytes]]


@contextmanager
def damage_reported(label: str) -> Iterator[None]:
    """Turn the errors of a damaged archive into a `SourceError` that names it."""
    try:
        yield
    except DAMAGE as error:
        raise SourceError(f"{label}: the downloaded package is damaged ({error}): try again") from error


def archived_files(archive: Path) -> Iterator[ArchivedFile]:
    """All regular files of a wheel or a source package, in its order.

    Raises:
        SourceError: a path leads outside the archive, or the archive is of an unknown kind.
        zipfile.BadZipFile, tarfile.TarError and others: see `DAMAGE`.
    """
    if zipfile.is_zipfile(archive):
        yield from _zipped_files(archive)
    elif archive.name.endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")):
        yield from _tarred_files(archive)
    else:
        raise SourceError(f"{archive.name}: is neither a wheel nor a source package: choose another version")


def _zipped_files(archive: Path) -> Iterator[ArchivedFile]:
    is_source = archive.suffix == ".zip"
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            path = _inner_path(info.filename, archive, is_source=is_source)
            if path and not info.is_dir():
                yield ArchivedFile(path, info.file_size, partial(opened.open, info))


def _tarred_files(archive: Path) -> Iterator[ArchivedFile]:
    with tarfile.open(archive) as opened:
        for info in opened:
            if not info.isreg():
                continue
            path = _inner_path(info.name, archive, is_source=True)
            if path:
                yield ArchivedFile(path, info.size, partial(_tarred_contents, opened, info))


def _tarred_contents(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    contents = opened.extractfile(info)
    if contents is None:
        raise tarfile.ReadError(f"{info.name} has no contents")
    return contents


def _inner_path(name: str, archive: Path, *, is_source: bool) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{archive.name}: holds the path {name!r}, which leads outside: do not use this package")
    return "/".join(path.parts[1:] if is_source else path.parts)
