"""How far a long file operation is: a bar on a terminal, one line at start and end elsewhere.

Called by `packages` and `hub`. Writes to stderr only, and refuses to know what is being done.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


class _Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar without tqdm's monitoring thread, which would outlive the download."""

    monitor_interval = 0


@contextmanager
def byte_progress(label: str, total_bytes: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Report on a number of bytes; yields a function that takes the bytes done since its last call."""
    if not shown:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _Bar(total=total_bytes, desc=label, unit="B", unit_scale=True, leave=False, file=sys.stderr) as bar:
            yield bar.update
    else:
        announce(f"{label}: {total_bytes:,} bytes", shown=True)
        yield lambda _: None
        announce(f"{label}: done", shown=True)


def announce(line: str, *, shown: bool) -> None:
    """Write one line about what begins or ended."""
    if shown:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
