"""A request's permit and receipt, as the server holds them; `bills` writes what they say.

Only the counting calls run where the request runs: they add to integers. Everything else runs in worker threads.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from memra.plugins import Outcome, UsageCounts
from memra_metering_ledger import bills
from memra_metering_ledger.database import Database
from memra_metering_ledger.errors import LedgerUnavailableError, ReceiptEndedError
from memra_metering_ledger.housekeeping import Housekeeper, now_ms
from memra_metering_ledger.money import Tokens

log = logging.getLogger(__name__)


@dataclass
class Once:
    """Something that may happen once, whichever thread comes first."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    has_happened: bool = False

    def claim(self, what: str) -> None:
        """Take the one time.

        Raises:
            ReceiptEndedError: it is taken.
        """
        with self._lock:
            if self.has_happened:
                raise ReceiptEndedError(f"{what} was given back or ended already")
            self.has_happened = True


@dataclass
class LedgerPermit:
    """A hold for the worst case."""

    database: Database
    housekeeper: Housekeeper
    hold_id: str
    once: Once = field(default_factory=Once)

    def __del__(self) -> None:
        """Give back what nobody took: it came after the server's patience had ended, say."""
        if not self.once.has_happened:
            self.housekeeper.defer(partial(bills.release_hold, hold_id=self.hold_id))

    def refund(self) -> None:
        """Give back what was held; later, when the database does not answer now."""
        self.once.claim("the hold")
        try:
            with self.database.write() as connection:
                bills.release_hold(connection, self.hold_id)
        except LedgerUnavailableError as error:
            log.warning("%s", error)
            self.housekeeper.defer(partial(bills.release_hold, hold_id=self.hold_id))


@dataclass
class LedgerReceipt:
    """The account of one request."""

    database: Database
    housekeeper: Housekeeper
    receipt_id: str
    is_drain_over: Callable[[], bool]
    once: Once = field(default_factory=Once)
    _prompt: tuple[int, int] | None = None
    _completion: int = 0

    def __del__(self) -> None:
        """Close, without a bill, what nobody ended: it came after the server's patience had ended, say."""
        if not self.once.has_happened:
            self.housekeeper.defer(partial(bills.crash_receipt, receipt_id=self.receipt_id, now_ms=now_ms()))

    @property
    def wants_capture(self) -> bool:
        """No prompt and no answer is ever kept here."""
        return False

    def arm_capture(self, prompt_json: bytes) -> None:
        """Never called: nothing is captured."""

    def capture_completion_delta(self, text: str) -> None:
        """Never called: nothing is captured."""

    def record_prompt_usage(self, prompt_tokens: int, cached_prompt_tokens: int) -> None:
        """Note that the worker took the prompt."""
        self._prompt = (prompt_tokens, cached_prompt_tokens)

    def record_completion_tokens(self, num_tokens: int) -> None:
        """Note tokens that were generated since the last call."""
        self._completion += num_tokens

    def complete(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle an answer that is whole.

        Raises:
            LedgerUnavailableError: it could not be written; then nobody pays for it, whatever the database does yet.
            ReceiptEndedError: it has ended before.
        """
        self._complete(Outcome.COMPLETED, usage, elapsed_s)

    def complete_deadline_partial(self, usage: UsageCounts, *, elapsed_s: float) -> None:
        """Settle the part that was there when the deadline passed; as `complete`."""
        self._complete(Outcome.DEADLINE_PARTIAL, usage, elapsed_s)

    def _complete(self, outcome: Outcome, usage: UsageCounts, elapsed_s: float) -> None:
        self.once.claim("the receipt")
        tokens = Tokens.clamped(usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens)
        ending = bills.Ending(outcome, tokens, status=200, elapsed_ms=round(elapsed_s * 1000))
        try:
            self._close(ending)
        except LedgerUnavailableError:
            self.housekeeper.defer(partial(bills.void_receipt, receipt_id=self.receipt_id, now_ms=now_ms()))
            raise

    def abandon(self) -> None:
        """Settle what was recorded: the client left. After the end of the drain it is our fault, and costs nothing."""
        outcome = Outcome.DRAIN_KILLED if self.is_drain_over() else Outcome.ABANDONED
        self._end(bills.Ending(outcome, self._recorded()))

    def reject(self, status: int, code: str | None) -> None:
        """Close without a bill: the request was refused."""
        self._end(bills.Ending(Outcome.REJECTED, None, status=status, code=code))

    def settle_unbilled(self, outcome: Outcome, status: int, code: str | None) -> None:
        """Close without a bill, with what was counted until then.

        Raises:
            ValueError: that outcome is paid for.
        """
        if outcome.is_billable:
            raise ValueError(f"outcome {outcome} is paid for; end the receipt with complete or abandon")
        self._end(bills.Ending(outcome, self._recorded(), status=status, code=code))

    def _recorded(self) -> Tokens | None:
        return None if self._prompt is None else Tokens.clamped(*self._prompt, self._completion)

    def _end(self, ending: bills.Ending) -> None:
        self.once.claim("the receipt")
        try:
            self._close(ending)
        except LedgerUnavailableError as error:
            log.warning("%s", error)
            self.housekeeper.defer(partial(bills.end_later, receipt_id=self.receipt_id, ending=ending, now_ms=now_ms()))

    def _close(self, ending: bills.Ending) -> None:
        with self.database.write() as connection:
            bills.close_receipt(connection, self.receipt_id, ending, now_ms=now_ms())
