"""How much memory there is, and how fast it is read: the speed limit of a model that decodes one row.

Reads /proc and /sys, and measures with numpy, which is imported only then. Refuses to know models. Called by `memra
doctor` and `memra bench`.
"""

import time
from dataclasses import dataclass
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MIN_BUFFER_BYTES = 256 << 20
_MAX_BUFFER_BYTES = 1 << 30
"""More than the last-level cache of common machines; where the cache is larger the figure is partly the cache's."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the machine; 0 where the system does not tell."""

    total_bytes: int
    available_bytes: int


def find_memory(*, meminfo: Path = _MEMINFO) -> Memory:
    """Ask the system."""
    found = {}
    try:
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    except OSError:
        return Memory(0, 0)
    return Memory(found.get("MemTotal", 0), found.get("MemAvailable", 0))


def last_level_cache_bytes(*, caches: Path = _CACHES) -> int:
    """Size of the largest cache of the first processor; 0 where the system does not tell."""
    sizes = [0]
    for path in caches.glob("index*/size"):
        text = path.read_text(encoding="utf-8").strip()
        unit = _UNITS.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        sizes.append(int(digits) * unit if digits.isdigit() else 0)
    return max(sizes)


class ReadTest:
    """Reads a large buffer with several threads; the buffer lives as long as the test.

    The rate is what numpy's reduction reaches: a lower bound of what the memory gives.
    """

    def __init__(self, num_threads: int) -> None:
        """Allocate and touch the buffer.

        It has twice the last-level cache, within 256 MiB and 1 GiB, and at most a quarter of what is available.
        """
        import numpy as np  # noqa: PLC0415  (only a measurement needs it)

        wanted = min(max(2 * last_level_cache_bytes(), _MIN_BUFFER_BYTES), _MAX_BUFFER_BYTES)
        available = find_memory().available_bytes or wanted * 4
        self.num_bytes = min(wanted, available // 4) // 8 * 8
        self.num_threads = num_threads
        self._parts = np.array_split(np.ones(self.num_bytes // 8, np.uint64), num_threads)
        self._reduce = np.bitwise_or.reduce

    def measure(self) -> float:
        """Bytes a second of one pass over the buffer."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (as numpy)

        with ThreadPoolExecutor(self.num_threads) as pool:
            started_at = time.perf_counter()
            list(pool.map(self._reduce, self._parts))
            return self.num_bytes / (time.perf_counter() - started_at)
