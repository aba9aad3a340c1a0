"""What a ledger does beside the requests: it says that it lives, looks after dead servers, and mends what failed.

One thread of its own, which ends with the server. What could not be written when a request ended, because the database
did not answer, is kept here and tried again; how many are kept is bounded, and what is lost with the process is closed
by the next one, as crashed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from memra.plugins import LimitsHealth
from memra_metering_ledger import owners
from memra_metering_ledger.database import Database
from memra_metering_ledger.errors import LedgerUnavailableError

log = logging.getLogger(__name__)

BEAT_S = 5.0
MAX_MENDINGS = 10_000

Mending = Callable[[Connection], object]
"""Something that is still to be written, in a transaction of its own; doing it twice does no harm."""


def now_ms() -> int:
    """Return the time as the tables keep it."""
    return time.time_ns() // 1_000_000


@dataclass
class Housekeeper:
    """Keeps one server's part of a ledger in order. `defer` and `health` may be called from any thread."""

    database: Database
    owner_id: str
    process: owners.Process = field(default_factory=owners.Process.this)
    watch: owners.Watch = field(default_factory=owners.Watch)
    _mendings: deque[Mending] = field(default_factory=lambda: deque(maxlen=MAX_MENDINGS))
    _ending: threading.Event = field(default_factory=threading.Event)
    _num_failed: int = 0
    _num_failed_in_a_row: int = 0
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Write the server down, release what dead ones held, and go on with both beside it.

        Raises:
            LedgerUnavailableError: the database does not answer.
        """
        self.look_after()
        self._thread = threading.Thread(target=self._run, name="memra-ledger", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(BEAT_S):
            self.try_to_look_after()

    def try_to_look_after(self) -> None:
        """Do one round; what fails is logged, counted and tried in the next one."""
        try:
            self.look_after()
        except Exception as error:  # whatever it is, the beat goes on: who falls silent is taken for dead
            self._num_failed += 1
            self._num_failed_in_a_row += 1
            log.warning("%s", error, exc_info=not isinstance(error, LedgerUnavailableError))

    def look_after(self) -> None:
        """Do one round.

        Raises:
            LedgerUnavailableError: the database does not answer.
        """
        if not owners.beat(self.database, self.owner_id, self.process, now_ms=now_ms()):
            log.info("ledger %s: this server is %s", self.database.address, self.owner_id)
        self._mend()
        num_dead = owners.bury_dead(
            self.database, self.watch, own_id=self.owner_id, now_ms=now_ms(), now_s=time.monotonic()
        )
        if num_dead:
            log.warning("ledger %s: released what %d dead servers held", self.database.address, num_dead)
        self._num_failed_in_a_row = 0

    def _mend(self) -> None:
        while self._mendings:
            mending = self._mendings.popleft()
            try:
                with self.database.write() as connection:
                    mending(connection)
            except LedgerUnavailableError:
                self._mendings.append(mending)  # behind the others, so that one that cannot be done stops no other
                raise

    def defer(self, mending: Mending) -> None:
        """Keep something to be written as soon as the database answers; beyond the bound, the oldest is given up."""
        if len(self._mendings) == MAX_MENDINGS:
            log.error("ledger %s: too much to mend; the oldest is left to the next start", self.database.address)
        self._mendings.append(mending)

    def health(self) -> LimitsHealth:
        """Return how the database does, without asking it."""
        return LimitsHealth(
            source_reload_failed=self._num_failed,
            source_reload_consecutive=self._num_failed_in_a_row,
            source_available=self._num_failed_in_a_row == 0,
        )

    def stop(self) -> None:
        """End the thread, close what this server left open as crashed, and strike the server out."""
        self._ending.set()
        if self._thread:
            self._thread.join()
        try:
            self._mend()
            owners.release_owner(self.database, self.owner_id, now_ms=now_ms())
        except LedgerUnavailableError as error:
            log.warning("%s; the next start releases what this server held", error)
