"""One tree of errors whose leaves say what happened; `memra.http.errors` alone knows status codes.

Standard library only. Every message is one sentence for the person who can act on it: it names the thing and the
remedy, and never holds prompt text. Errors before the server is up come first, errors about one request after them.
"""


class MemraError(Exception):
    """Something that memra says in its own words.

    Attributes:
        message: one line, fit for a user.
    """

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class UsageError(MemraError):
    """The command line or the plugin set is wrong: exit code 2."""


class StartupError(MemraError):
    """The server cannot start: exit code 1."""


class ConfigurationError(StartupError):
    """A setting, from whatever source, has a value that cannot be used."""


class SourceError(StartupError):
    """A model source cannot be found, fetched or verified."""


class CorruptFileError(StartupError):
    """A model file contradicts itself or ends too early."""


class UnsupportedModelError(StartupError):
    """The file is sound, but holds something that memra does not run; named, never half-run."""


class AddressError(StartupError):
    """The address cannot be bound."""


class MeasurementError(MemraError):
    """`memra bench` cannot measure what it was asked to: exit code 1."""


class IntegrityError(MemraError):
    """The engine's own bookkeeping contradicts itself: a bug, after which the worker must not go on."""


class LostBlobError(MemraError):
    """What was put into the host tier cannot be had back as it was; whoever holds its handle drops the entry."""


class HandoffError(MemraError):
    """The hand-off file is refused, or cannot be written; serving goes on without it."""


class RequestError(MemraError):
    """A request that is answered with an error.

    Attributes:
        param: the request field that is at fault, or None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        """Keep the message and the field at fault."""
        super().__init__(message)
        self.param = param


class InvalidRequestError(RequestError):
    """The client sent something malformed or unsupported; sending it again will not help."""


class AuthenticationError(RequestError):
    """The request carries no API key, or one that opens nothing here."""


class ForbiddenError(RequestError):
    """Whoever asks is known, and may not have this."""


class UnknownModelError(InvalidRequestError):
    """No model of that name is served."""


class WrongTaskError(InvalidRequestError):
    """The model does something else with text than it was asked for."""


class UnlistedModelError(RequestError):
    """A model was asked about, rather than asked for, and no such name is served."""


class UnknownRequestError(RequestError):
    """No request of that id is under way for that key."""


class RequestCancelledError(RequestError):
    """The request was ended before its answer was complete, because its sender asked for that."""


class InvalidLaneError(InvalidRequestError):
    """The `x-lane` header names no lane."""


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the model's context."""


class RequestTooLongForMemoryError(InvalidRequestError):
    """Prompt and answer together need more cache memory than the model has in all, so waiting would not help."""


class InfeasibleDeadlineError(InvalidRequestError):
    """An answer that is not streamed cannot be complete within the request's deadline."""


class TemplateError(InvalidRequestError):
    """The model's chat template refused the messages, in its own words."""


class BusyError(RequestError):
    """A limit is reached for the moment.

    Attributes:
        retry_after_s: seconds after which trying again makes sense.
        slots_limit, slots_remaining: of the lane that is full, as in `RequestAdmitted`; None when no lane is.
        slots_reset_s: seconds until a slot of it may be free; set by whoever knows, None where that is the wait.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 2.0,
        param: str | None = None,
        slots_limit: int | None = None,
        slots_remaining: int | None = None,
    ) -> None:
        """Keep the message, the wait and the lane's slots."""
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s
        self.slots_limit = slots_limit
        self.slots_remaining = slots_remaining
        self.slots_reset_s: int | None = None


class QueueFullError(BusyError):
    """So many requests wait already that another one is not let into the queue."""


class DeadlineUnreachableError(BusyError):
    """The request would still wait for its turn when its deadline passes."""


class QueueWaitError(BusyError):
    """The request would wait for its turn longer than this server lets anybody wait."""


class BodyBusyError(BusyError):
    """Too many request bodies are being read at once."""


class DrainingError(BusyError):
    """The server is on its way down and takes no new work."""


class OverloadedError(BusyError):
    """The worker could not take or finish the request for want of memory or because it was restarted."""


class ModelLoadError(BusyError):
    """The model that the request asks for could not be loaded; the cause stands in the log, with its details."""


class EngineFaultError(RequestError):
    """The engine failed while it worked on this request; the raw cause is in the log, not in the message."""


class WorkerFaultError(EngineFaultError):
    """The worker failed on this request alone and goes on with the others; the raw cause is in the log."""


class GrammarDeadEndError(WorkerFaultError):
    """The grammar of this answer leaves no token to go on with, or asks for more work than a token may cost."""


class DeadlineExceededError(RequestError):
    """The request's deadline passed before anything of its answer was there."""


class BodyTooLargeError(RequestError):
    """The request's body is over the limit."""


class PluginFaultError(RequestError):
    """A plugin failed, took too long or answered nonsense when it was asked about this request; the log names it."""


class InsufficientBalanceError(RequestError):
    """The worst case of the request is not covered, or the tenant is kept out."""


class TenantNotEnrolledError(RequestError):
    """Nobody has opened an account for the tenant."""


class KeySpendCapError(RequestError):
    """The key has spent what it may."""


class BudgetUnavailableError(RequestError):
    """The accounting cannot say at the moment whether the request may be had, so it may not."""


class LedgerUnavailableError(RequestError):
    """The answer was there, but could not be written down as paid for; it is not given out, and costs nothing."""


class DeniedError(RequestError):
    """A plugin says no to this request, in its own words.

    Attributes:
        status: of HTTP, 400 to 599.
        code: of the error body, or None.
        retry_after_s: seconds after which trying again makes sense, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 403,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep the message and the plugin's choice of answer."""
        super().__init__(message, param=param)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
