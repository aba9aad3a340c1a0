"""Faults on demand, so that a test sees the whole server survive them: an engine that fails as a setting says.

Wraps the real engine in the worker's thread and only where a setting asks for it. Knows when to fail; refuses to know
what the house makes of it. The counts go on over restarts of the worker, so each fault strikes once in a process.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

from memra.actors.worker_engine import WorkerEngine
from memra.messages.work import RequestFailed, StepFinished, SubmitPrompt, WorkEvent
from memra.settings import FaultSettings
from memra.types import RequestId

log = logging.getLogger(__name__)


class InjectedFaultError(RuntimeError):
    """A fault that a setting asked for."""


def _hang() -> None:
    """Stay here for ever, as a thread inside a dead driver does."""
    threading.Event().wait()


class FaultPlan:
    """Which step or request is to fail, and how far the process has come; one for all workers."""

    def __init__(self, settings: FaultSettings, *, hang: Callable[[], object] = _hang) -> None:
        """Take the settings, and what a hang is."""
        self._settings = settings
        self._hang = hang
        self._num_steps = 0
        self._num_requests = 0

    def wrap(self, engine: WorkerEngine) -> WorkerEngine:
        """Return an engine that fails as planned; the same one when nothing is planned."""
        return engine if self._settings == FaultSettings() else cast("WorkerEngine", _FaultyEngine(engine, self))

    def enter_step(self) -> None:
        """Count a step that has work, and fail or hang in it when it is the one."""
        self._num_steps += 1
        if self._num_steps in self._settings.panic_after:
            raise InjectedFaultError(f"the worker was to die in step {self._num_steps} (MEMRA_PANIC_AFTER)")
        if self._num_steps == self._settings.hang_after:
            log.warning("the worker hangs in step %d (MEMRA_HANG_AFTER)", self._num_steps)
            self._hang()

    def strikes_request(self) -> bool:
        """Count a request, and say whether it is to fail."""
        self._num_requests += 1
        return self._num_requests == self._settings.fault_after


class _FaultyEngine:
    """Everything but `submit` and `step` is the wrapped engine's own."""

    def __init__(self, engine: WorkerEngine, plan: FaultPlan) -> None:
        self._engine = engine
        self._plan = plan
        self._struck: list[RequestId] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, prompt: SubmitPrompt) -> None:
        self._engine.submit(prompt)
        if self._plan.strikes_request():
            self._struck.append(prompt.request_id)

    def step(self) -> StepFinished:
        self._plan.enter_step()
        failed: list[WorkEvent] = []
        for request_id in self._struck:
            self._engine.abort(request_id)
            failed.append(RequestFailed(request_id, "the request was to fail (MEMRA_FAULT_AFTER)"))
        self._struck.clear()
        finished = self._engine.step()
        return StepFinished((*failed, *finished.events), finished.step_s) if failed else finished
