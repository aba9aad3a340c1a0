"""The last resort of a shutdown: ends the process from outside the loop when the orderly way hangs.

A timer thread of its own, because whatever hangs may be the loop itself. Lifecycle arms it and takes it back.
"""

import logging
import os
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Watchdog:
    """Armed at most once at a time."""

    def __init__(self, *, end_process: Callable[[int], object] = os._exit) -> None:
        """Take the function that ends the process; the default skips every cleanup, which is the point of it."""
        self._end_process = end_process
        self._timer: threading.Timer | None = None

    def arm(self, *, after_s: float, exit_code: int) -> None:
        """End the process with this code unless `cancel` is called in time; arming again sets a new time."""
        self.cancel()
        self._timer = threading.Timer(after_s, self._bite, (after_s, exit_code))
        self._timer.name = "watchdog"
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """The shutdown ended in good order; harmless when nothing is armed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _bite(self, after_s: float, exit_code: int) -> None:
        log.critical("the shutdown did not end within %g s; ending the process", after_s)
        self._end_process(exit_code)
