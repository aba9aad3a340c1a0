"""How many processors this process may use: what the system would let it run on, and what a container grants of that.

Reads /proc and /sys; refuses to know what the threads are for.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Processors:
    """What may be used.

    Attributes:
        num_present: processors of the machine.
        num_affine: processors that the process may run on (`taskset`, cpusets).
        quota: processor seconds a second that the control group grants; None without a limit.
    """

    num_present: int
    num_affine: int
    quota: float | None

    @property
    def num_usable(self) -> int:
        """Threads that can run at the same time, at least 1; a part of a processor counts as one."""
        limit = self.num_affine if self.quota is None else math.ceil(self.quota)
        return max(1, min(self.num_affine, limit))


def find_processors(*, cgroups: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> Processors:
    """Ask the system.

    Args:
        cgroups: where the control groups are mounted.
        membership: the file that names the groups of this process.
    """
    num_present = os.cpu_count() or 1
    num_affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else num_present
    quotas = [quota for folder in _own_groups(cgroups, membership) if (quota := _read_quota(folder)) is not None]
    return Processors(num_present, num_affine, min(quotas, default=None))


def processor_name(*, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as its maker gives it; `unknown` where the system does not tell."""
    for line in _read(cpuinfo).splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return "unknown"


def _own_groups(cgroups: Path, membership: Path) -> Iterator[Path]:
    """The folders of the process's group and of all groups around it, in both versions of the interface."""
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        inner = root / group.lstrip("/")
        yield inner
        yield from (folder for folder in inner.parents if folder == root or root in folder.parents)
    yield cgroups


def _read_quota(folder: Path) -> float | None:
    """`cpu.max` of version 2 is `QUOTA PERIOD`, or `max PERIOD`; version 1 has two files and -1 for no limit."""
    words = _read(folder / "cpu.max").split()
    if not words:
        words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
    try:
        quota, period = (float(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
