"""What the driver's words mean for the GPU: lines of the kernel log, pages of `nvidia-smi`, and the faults that stay.

Pure reading and counting; refuses to know where the words come from and how one waits for them (`gpu_watch`), and what
a red GPU means for the server (`health`). Trio thread only.
"""

import re
import time
from collections.abc import Callable

from memra.messages.lifecycle import GpuProbeState, GpuReported

FATAL_XIDS = frozenset({48, 64, 79, 94, 95, 119, 120})
"""Xid codes after which a GPU cannot be trusted: uncorrectable memory errors (48, 64, 94, 95), off the bus (79), and a
system processor that answers no more (119, 120). NVIDIA, "XID Errors"; of the others most are a program's mistake."""

NUM_STARTUP_HANGS = 6
"""Probes that may hang before the first one answers: a driver that wakes up or loads weights can take minutes."""

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<gpu>[^)]*)\): (?P<code>\d+)")


def read_xid(line: str) -> tuple[int, str] | None:
    """Return code and PCI address of the Xid that a line of the kernel log reports, or None."""
    found = _XID.search(line)
    return None if found is None else (int(found["code"]), found["gpu"])


def find_fault(page: str) -> str | None:
    """Return the first fault that `nvidia-smi -q -d ECC,ROW_REMAPPER` shows, or None.

    A fault is an uncorrected memory error since the driver was loaded, or a row of memory that could not be replaced.
    Aggregate counters, which outlive repairs, count for nothing; neither does what a GPU does not measure (`N/A`).
    """
    titles: list[tuple[int, str]] = []
    for line in page.splitlines():
        depth = len(line) - len(line.lstrip())
        key, _, value = (part.strip() for part in line.partition(" : "))
        while titles and titles[-1][0] >= depth:
            titles.pop()
        path = [title for _, title in titles]
        if value and _is_fault(path, key, value):
            return f"{path[0] if path else 'a GPU'}: {key} is {value}"
        if key and not value:
            titles.append((depth, key))
    return None


def _is_fault(path: list[str], key: str, value: str) -> bool:
    if key == "Remapping Failure Occurred":
        return value.lower() in {"yes", "1"}
    # GPUs before Ampere count single and double bit errors instead.
    is_uncorrected = "Uncorrectable" in key or "Double Bit" in path
    return "Volatile" in path and is_uncorrected and value.isdigit() and int(value) > 0


class GpuRecord:
    """What is known of the GPUs; the first fault stays for the life of the process, whatever workers come and go."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without a fault.

        Args:
            clock: seconds, never running backwards.
        """
        self._clock = clock
        self._fault: str | None = None
        self._num_warnings = 0
        self._probe_state = GpuProbeState.OFF
        self._probed_at: float | None = None
        self._probe_s: float | None = None
        self._num_hangs = 0
        self._has_answered = False

    def note_line(self, line: str) -> None:
        """Take a line of the kernel log; most are not about GPUs."""
        xid = read_xid(line)
        if xid is None:
            return
        code, gpu = xid
        if code in FATAL_XIDS:
            self._latch(f"GPU {gpu} reported Xid {code}")
        else:
            self._num_warnings += 1

    def note_page(self, page: str, *, took_s: float) -> None:
        """Take what a probe printed that ended well."""
        fault = find_fault(page)
        self._has_answered = True
        self._note_probe(GpuProbeState.OK if fault is None else GpuProbeState.FAULT, took_s)
        if fault is not None:
            self._latch(fault)

    def note_failed(self, *, took_s: float) -> None:
        """A probe ended with an error: says nothing about the GPU, for the tool and the driver may not match."""
        self._has_answered = True
        self._note_probe(GpuProbeState.FAILED, took_s)

    def note_hang(self, *, took_s: float) -> None:
        """A probe did not end in time; a fault, once one has answered or too many have hung."""
        self._num_hangs += 1
        self._note_probe(GpuProbeState.HUNG, took_s)
        if self._has_answered or self._num_hangs > NUM_STARTUP_HANGS:
            self._latch(f"the GPU's driver did not answer within {took_s:.0f} s")

    def note_missing(self) -> None:
        """There is no tool to probe with."""
        self._probe_state = GpuProbeState.MISSING

    def read(self) -> GpuReported:
        """Return a copy."""
        return GpuReported(
            fault=self._fault,
            xid_warnings=self._num_warnings,
            probe_state=self._probe_state,
            probe_age_ms=None if self._probed_at is None else 1000 * (self._clock() - self._probed_at),
            probe_took_ms=None if self._probe_s is None else 1000 * self._probe_s,
            num_probe_hangs=self._num_hangs,
        )

    def _note_probe(self, state: GpuProbeState, took_s: float) -> None:
        self._probe_state = state
        self._probed_at = self._clock()
        self._probe_s = took_s

    def _latch(self, fault: str) -> None:
        self._fault = self._fault or fault
