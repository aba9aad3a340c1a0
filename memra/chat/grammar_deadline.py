"""Compiling under a deadline: llguidance cannot be stopped, but nobody has to wait for it.

Trade: runs a compilation in a thread of its own and gives up on it after a while; refuses to know what is compiled.
Those given up on go on until llguidance's own limits end them; while too many do, nothing is compiled. Used by
`memra.chat.grammar`, from any thread.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from memra.errors import BusyError, InvalidRequestError

COMPILE_S = 5.0
MAX_ABANDONED = 4

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Outcome(Generic[_Result]):
    """What a thread leaves behind."""

    result: _Result | None = None
    error: Exception | None = None


class CompileDeadline:
    """Bounds the compilations of one model."""

    def __init__(self, *, seconds: float = COMPILE_S, max_abandoned: int = MAX_ABANDONED) -> None:
        """Begin with none that was given up on."""
        self._seconds = seconds
        self._max_abandoned = max_abandoned
        self._abandoned: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, compilation: Callable[[], _Result], *, param: str) -> _Result:
        """Return what a compilation returns, and raise what it raises.

        Args:
            compilation: may go on after its time; holds nothing that anybody waits for.
            param: the request field at fault, for errors.

        Raises:
            InvalidRequestError: the compiler broke down over it.
            BusyError: it took too long, or too many earlier ones did and still go on.
        """
        self._check_abandoned(param)
        outcome: _Outcome[_Result] = _Outcome()
        thread = threading.Thread(target=_run, args=(compilation, outcome, param), name="grammar", daemon=True)
        thread.start()
        thread.join(self._seconds)
        if outcome.error is not None:
            raise outcome.error
        if outcome.result is None:
            with self._lock:
                self._abandoned.append(thread)
            raise BusyError(
                f"the grammar in `{param}` could not be compiled within {self._seconds:g} seconds; simplify it.",
                param=param,
            )
        return outcome.result

    def _check_abandoned(self, param: str) -> None:
        with self._lock:
            self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
            if len(self._abandoned) >= self._max_abandoned:
                raise BusyError("the grammars of other requests are still being compiled; try again.", param=param)


def _run(compilation: Callable[[], _Result], outcome: _Outcome[_Result], param: str) -> None:
    try:
        outcome.result = compilation()
    except Exception as error:  # noqa: BLE001  (carried to the thread that waits)
        outcome.error = error
    except BaseException:  # noqa: BLE001  (a panic in Rust is no `Exception`, and would end the thread that waits)
        outcome.error = InvalidRequestError(
            f"the compiler broke down over the grammar in `{param}`; simplify it.", param=param
        )
