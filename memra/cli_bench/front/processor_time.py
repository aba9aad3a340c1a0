"""Processor time of one thread: of a piece of work in this process, and of the loop of another.

Time on the clock counts whatever else the machine does; processor time does not, and the least of many rounds is that
of the round which was disturbed least. Knows clocks and /proc; refuses to know what is measured.
"""

import time
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")


def least_us(work: Callable[[], object], *, rounds: int, repeats: int = 1) -> float:
    """Return the microseconds of processor time that some work takes in this thread, in its best round.

    Args:
        work: is done `rounds * repeats` times.
        rounds: of which the best one counts.
        repeats: in a round; many for work that takes less than some microseconds.
    """
    best_ns = min(_round_ns(work, repeats) for _ in range(rounds))
    return best_ns / repeats / 1e3


def _round_ns(work: Callable[[], object], repeats: int) -> int:
    started_ns = time.thread_time_ns()
    for _ in range(repeats):
        work()
    return time.thread_time_ns() - started_ns


def read_main_thread_s(pid: int, *, proc: Path = _PROC) -> float | None:
    """Return the processor seconds of a process's first thread, in which `memra run` has its loop.

    The first number of Linux's `schedstat`, nanoseconds; None where the system does not tell, or the process is gone.
    """
    try:
        words = (proc / str(pid) / "task" / str(pid) / "schedstat").read_text(encoding="utf-8").split()
        return int(words[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
