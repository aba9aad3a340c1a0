"""Files that say who may come in: read only where nobody else can have written them.

A file that others could have changed, or that is not the one it seems, is refused rather than believed. Refuses to know
what is written in it. Called by whoever reads keyrings and tokens.
"""

import os
import stat
from pathlib import Path

from memra.errors import ConfigurationError

_FOREIGN_BITS = 0o137
"""What a mode of at most 0640 lacks: nobody but the owner writes, and strangers do not even read."""


def read_private_text(path: Path, *, max_bytes: int, is_owner_checked: bool = True) -> str:
    """Open, look and read through one descriptor, so that nothing can be put in between.

    Args:
        path: where it lies.
        max_bytes: a larger file is a mistake.
        is_owner_checked: refuse a file of anybody but the process's own user and root.

    Raises:
        ConfigurationError: says what is wrong with the file, and leaves it to the caller to name it.
    """
    try:
        # Without O_NONBLOCK a pipe in the file's place would hold the server.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        is_link = path.is_symlink()
        reason = "is a symbolic link; name the file itself" if is_link else f"cannot be read: {error.strerror}"
        raise ConfigurationError(reason) from None
    try:
        _check_file(os.fstat(descriptor), is_owner_checked=is_owner_checked)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise ConfigurationError(f"is larger than {_size(max_bytes)}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError("is not UTF-8") from None


def _size(num_bytes: int) -> str:
    return f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes} bytes"


def _check_file(found: os.stat_result, *, is_owner_checked: bool) -> None:
    mode = stat.S_IMODE(found.st_mode)
    complaints = {
        "is not a regular file": not stat.S_ISREG(found.st_mode),
        f"belongs to user {found.st_uid}; it must be the server's own, or root's": is_owner_checked
        and found.st_uid not in {os.geteuid(), 0},
        f"has mode {mode:04o}, so that others can read or change it; chmod 600 or 640": bool(mode & _FOREIGN_BITS),
        "has several names (hard links); it must have one": found.st_nlink != 1,
    }
    for complaint, is_true in complaints.items():
        if is_true:
            raise ConfigurationError(complaint)
