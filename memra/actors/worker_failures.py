"""What a client is told when the worker could not go on with its request; the cause itself goes to the log.

A pure translation but for that line in the log; called by whoever reads the worker's events for a request.
"""

import logging

from memra.errors import GrammarDeadEndError, OverloadedError, RequestError, WorkerFaultError
from memra.messages.work import RequestFailed

log = logging.getLogger(__name__)

_RETRY_OVERLOADED_S = 5.0
"""A worker that ran out of memory or is reloading needs seconds, not moments."""


def error_of(event: RequestFailed) -> RequestError:
    """Log a failure's cause, and return the error in words for the client."""
    log.error("request %s failed in the worker: %s", event.request_id, event.detail)
    if event.overloaded:
        return OverloadedError(
            "The model worker ran out of memory or was restarted; try again shortly.",
            retry_after_s=_RETRY_OVERLOADED_S,
        )
    if event.is_dead_end:
        return GrammarDeadEndError(
            "The answer came to a place where its grammar allows no token, or costs too much; simplify the grammar."
        )
    return WorkerFaultError("The engine failed on this request; the server's log says more.")
