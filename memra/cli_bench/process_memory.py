"""What the system says of a process's resident memory: reads /proc, and refuses to know whose process it is."""

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Resident bytes of a process.

    Attributes:
        anonymous_bytes: `RssAnon` of /proc/PID/status: what the process wrote and no file holds.
        file_bytes: `RssFile`: mapped files, libraries and weights alike.
        shared_bytes: `RssShmem`.
        proportional_bytes: `Pss` of /proc/PID/smaps_rollup: as all three together, but a page that several processes
            map counts as a share of it.
    """

    anonymous_bytes: int
    file_bytes: int
    shared_bytes: int
    proportional_bytes: int

    @property
    def resident_bytes(self) -> int:
        """All that is resident: `VmRSS`."""
        return self.anonymous_bytes + self.file_bytes + self.shared_bytes


def read_process_memory(pid: int, *, proc: Path = _PROC) -> ProcessMemory | None:
    """Ask the system; None where it does not tell, or the process is gone."""
    folder = proc / str(pid)
    status, rollup = _read_sizes(folder / "status"), _read_sizes(folder / "smaps_rollup")
    try:
        return ProcessMemory(status["RssAnon"], status["RssFile"], status["RssShmem"], rollup["Pss"])
    except KeyError:
        return None


def _read_sizes(path: Path) -> dict[str, int]:
    """Every line `Name:   123 kB` in bytes."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    sizes = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":  # noqa: PLR2004  (a number and its unit)
            sizes[name] = int(words[0]) * _KIB
    return sizes
