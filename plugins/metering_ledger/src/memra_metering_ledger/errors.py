"""What goes wrong in a ledger, in words for the person who can act on it."""

from memra.errors import StartupError, UsageError


class LedgerUnavailableError(StartupError):
    """The database does not answer, or not in time."""


class LedgerFormatError(StartupError):
    """The database holds something else than a ledger that this version reads."""


class ReceiptEndedError(RuntimeError):
    """A receipt has had its one end already: given twice, or closed by somebody who took this server for dead."""


class LedgerRequestError(UsageError):
    """An order to the ledger that cannot be carried out.

    Attributes:
        code: for machines; the admin routes tell it.
    """

    def __init__(self, message: str, *, code: str) -> None:
        """Keep the message and its code."""
        super().__init__(message)
        self.code = code
