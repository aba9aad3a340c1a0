"""Which host store a server gets, and how large it may be on this machine.

Knows the settings, the free memory and the free disk. Refuses to know what is stored. Called once, when models are
loaded; whoever calls closes the store.
"""

import logging
import os
import tempfile
from pathlib import Path

from memra.engine.host_store import FileStore, HostStore, PinnedStore
from memra.errors import ConfigurationError
from memra.settings import HostTierSettings

log = logging.getLogger(__name__)

MAX_PINNED_SHARE = 0.6
"""Of the available memory: pinned pages can never be swapped out, and files and other programs need the rest."""

_MEMINFO = Path("/proc/meminfo")
_MOUNTS = Path("/proc/self/mountinfo")


def open_host_store(settings: HostTierSettings, *, is_gpu: bool) -> HostStore | None:
    """Make the store that the settings ask for; None if they ask for none.

    Args:
        settings: of the host tier.
        is_gpu: whether the models' own pages lie in a GPU, so that the machine's memory is the larger place.

    Raises:
        ConfigurationError: no file can be made in the folder.
    """
    wanted = settings.memory_mb << 20
    if not wanted:
        return None
    if is_gpu:
        limit = _clamp(wanted, int(available_memory() * MAX_PINNED_SHARE), why="60 % of the available memory")
        return PinnedStore(limit, is_verified=settings.verify)
    directory = settings.directory or Path(tempfile.gettempdir())
    limit = _clamp(wanted, free_disk(directory), why=f"what is free in {directory}")
    if is_in_memory(directory):
        log.warning(
            "%s lies in memory, so evicted prefixes save none; MEMRA_KV_HOST_DIR names a folder on a disk", directory
        )
    return FileStore(limit, directory=directory, is_verified=settings.verify)


def available_memory() -> int:
    """Return the memory that can be taken without swapping, bytes, as Linux estimates it (`MemAvailable`).

    Raises:
        ConfigurationError: the system does not say.
    """
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration) as error:
        raise ConfigurationError(f"MEMRA_KV_HOST_MB: {_MEMINFO} does not say what is available; set it to 0") from error


def free_disk(directory: Path) -> int:
    """Return what an unprivileged program may still write in a folder, bytes.

    Raises:
        ConfigurationError: there is no such folder.
    """
    try:
        found = os.statvfs(directory)
    except OSError as error:
        raise ConfigurationError(f"MEMRA_KV_HOST_DIR: {directory}: {error.strerror}; name a folder") from error
    return found.f_bavail * found.f_frsize


def is_in_memory(directory: Path) -> bool:
    """Whether a folder is of a file system that keeps its files in memory; False where the system does not say."""
    try:
        device = directory.stat().st_dev
        mounts = [line.split() for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    return any(fields[2] == name and fields[fields.index("-") + 1] in {"tmpfs", "ramfs"} for fields in mounts)


def _clamp(wanted: int, possible: int, *, why: str) -> int:
    if wanted <= possible:
        return wanted
    log.warning("MEMRA_KV_HOST_MB: %d is more than %s; %d are used", wanted >> 20, why, possible >> 20)
    return possible
