"""The directory where fetched models are kept: safe against concurrent starts, interruption and a full disk.

Called by `packages`, `hub` and `sources`. Knows locks, stamps and atomic placing, and refuses to know where files come
from. A file appears under its final name complete or not at all; its stamp records what was verified then.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from memra.errors import SourceError

CHUNK_BYTES: Final = 1 << 20
_WORKSPACE_PREFIX: Final = ".fetching-"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What was known about a file, or all files of a folder, when it was placed.

    Attributes:
        size_bytes: total size.
        num_files: 1 for a file.
        sha256: lower-case hex of a file; empty for a folder.
    """

    size_bytes: int
    num_files: int
    sha256: str = ""


def default_cache_dir() -> Path:
    """Where fetched models are kept unless the user says otherwise."""
    return platformdirs.user_cache_path("memra")


@contextmanager
def exclusive_workspace(folder: Path, label: str) -> Iterator[Path]:
    """Own `folder` among all processes, and get an empty directory in it that vanishes at the end.

    Waits for another owner. What an earlier, killed process left behind is removed.

    Raises:
        SourceError: the file system refused something inside the block, such as for want of space.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left_over in folder.glob(f"{_WORKSPACE_PREFIX}*"):
                shutil.rmtree(left_over, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                dir=folder, prefix=_WORKSPACE_PREFIX, ignore_cleanup_errors=True
            ) as workspace:
                yield Path(workspace)
    except OSError as error:
        raise SourceError(
            f"{label}: cannot be stored under {folder}: {error.strerror or error}: "
            "make room there, or choose another directory with MEMRA_MODELS_DIR"
        ) from error


def place(made: Path, final: Path, stamp: Stamp) -> None:
    """Move a finished file or folder from a workspace to its final name, then write its stamp."""
    if final.is_dir():
        shutil.rmtree(final)
    _stamp_path(final).unlink(missing_ok=True)
    os.replace(made, final)  # noqa: PTH105  (Path.replace is the same; this name says that it overwrites)
    write_stamp(final, stamp)


def write_stamp(final: Path, stamp: Stamp) -> None:
    """Record what was verified about a file or folder, atomically."""
    text = json.dumps({"size_bytes": stamp.size_bytes, "num_files": stamp.num_files, "sha256": stamp.sha256})
    temporary = _stamp_path(final).with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(_stamp_path(final))


def read_stamp(final: Path) -> Stamp | None:
    """The stamp of a file or folder that is still as large as it was; None otherwise."""
    try:
        values = json.loads(_stamp_path(final).read_text(encoding="utf-8"))
        stamp = Stamp(int(values["size_bytes"]), int(values["num_files"]), str(values["sha256"]))
        size_bytes, num_files = measure(final)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stamp if (stamp.size_bytes, stamp.num_files) == (size_bytes, num_files) else None


def measure(path: Path) -> tuple[int, int]:
    """Total size in bytes and number of files, of a file or a folder.

    Raises:
        OSError: it is not there.
    """
    if not path.is_dir():
        return path.stat().st_size, 1
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return sum(sizes), len(sizes)


def sha256_of(path: Path, advance: Callable[[int], object] = lambda _: None) -> str:
    """The SHA-256 of a file, in lower-case hex; `advance` is told the bytes read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


def _stamp_path(final: Path) -> Path:
    return final.with_name(f".{final.name}.stamp")
