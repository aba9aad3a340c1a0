"""Lifecycle: starts the worker, restarts it, judges its health, and leads the way down.

It accepts `ReportHealth` (asked; answered at once with `HealthReported`) and, told, `WorkerReady`, `WorkerDied`,
`RestartWorker`, `BeginDrain` and `EndDrain`. It sends `RefuseNewWork` to admission and `CutReplies` to ingress, and
writes the run's state, on which the composition root waits. SIGTERM and SIGINT begin the drain, a second one cuts it.

A first load that fails stops the run with exit code 1. A worker that dies later is replaced as often as the setting
allows, after a pause that grows with each try, and its queue is kept meanwhile; beyond that, or when a reload fails,
the queue is given up and the exit code is 70. A worker that
merely hangs is not replaced, for its thread cannot be ended: health goes red, and the service manager restarts the
process. Lifecycle's own waiting is done by tasks beside it, which end with it.
"""

import logging
import signal
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import trio

from memra.actors.base import ActorSystem, Ref, UnknownMessageError, tell_if_alive
from memra.actors.gpu_faults import GpuRecord
from memra.actors.health import HealthRules, judge_health
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.run_state import EXIT_STARTUP_FAILED, EXIT_WORKER_LOST, RunState
from memra.actors.trio_actor import TrioActor
from memra.actors.watchdog import Watchdog
from memra.actors.worker_link import WorkerLink
from memra.messages.lifecycle import (
    BeginDrain,
    EndDrain,
    HealthReported,
    RefuseNewWork,
    ReportHealth,
    RestartWorker,
    WorkerDied,
    WorkerReady,
)
from memra.messages.replies import CutReplies
from memra.settings import LifecycleSettings
from memra.types import ModelName

log = logging.getLogger(__name__)

CUT_GRACE_S = 0.5
"""After the cut, the time in which requests may still send their last words."""
_TEARDOWN_S = 10.0
"""What the composition root may take to stop everything, before the watchdog ends the process."""


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """What lifecycle watches over.

    Attributes:
        state: written here.
        replies: tells when no request is left.
        ingress, admission: told of the drain.
        worker: the way to the worker; each new one is attached to it.
        pulse: read for the health; its generation is set before each start.
        start_worker: starts a `GpuWorker` that reports to the given supervisor, and returns at once.
        models: names that are served, now or later, for the health page.
        watchdog: ends the process when the way down hangs.
        tell_of_cut: called before requests are cut that the drain's time was too short for.
        gpu: what is known of the GPUs, for the health page; None where none is watched. Outlives every worker.
    """

    state: RunState
    replies: ReplyTable
    ingress: Ref
    admission: Ref
    worker: WorkerLink
    pulse: WorkerPulse
    start_worker: Callable[[Ref], Ref]
    models: Collection[ModelName]
    watchdog: Watchdog = field(default_factory=Watchdog)
    gpu: GpuRecord | None = None
    tell_of_cut: Callable[[], object] = lambda: None


class Lifecycle(TrioActor):
    """See the module."""

    def __init__(
        self,
        system: ActorSystem,
        parts: LifecycleParts,
        *,
        settings: LifecycleSettings,
        signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT),
        respawn_pause_s: float = 2.0,
    ) -> None:
        """Take everything that is watched over.

        Args:
            system: the loop.
            parts: see there.
            settings: drain time, stall threshold and number of restarts.
            signals: those that begin the drain; with any, start the actor in the main thread.
            respawn_pause_s: times the number of the try: the pause before a restart, in which a driver may recover.
        """
        super().__init__(system)
        self._parts = parts
        self._settings = settings
        self._signals = signals
        self._respawn_pause_s = respawn_pause_s
        self._generation = 0
        self._is_draining = False
        self._drain_scope = trio.CancelScope()
        self._task_scopes: list[trio.CancelScope] = []

    def on_start(self) -> None:
        """Listen for signals, then start the first worker."""
        if self._signals:
            self._start_task(self._watch_signals)
        self._start_worker()

    def on_exit(self) -> None:
        """End the tasks and take the watchdog back: whoever stops lifecycle has come to the end of the way down."""
        self._parts.watchdog.cancel()
        for scope in self._task_scopes:
            scope.cancel()

    def handle(self, message: Any) -> HealthReported | None:
        """Handle one message; see the module for those accepted."""
        match message:
            case ReportHealth():
                return self._judge_health()
            case WorkerReady(generation):
                self._worker_is_ready(generation)
            case WorkerDied():
                self._worker_died(message)
            case RestartWorker(generation):
                self._restart_worker(generation)
            case BeginDrain(reason):
                self._begin_drain(reason)
            case EndDrain():
                self._drain_scope.cancel()
            case _:
                raise UnknownMessageError(self, message)
        return None

    def _judge_health(self) -> HealthReported:
        gpu = self._parts.gpu
        return judge_health(
            self._parts.pulse.read(),
            HealthRules(self._settings.stall_s, self._settings.drain_s, self._parts.models),
            now=monotonic(),
            is_draining=self._is_draining,
            gpu=None if gpu is None else gpu.read(),
        )

    def _start_worker(self) -> None:
        self._parts.pulse.begin(self._generation)
        self._parts.worker.attach(self._parts.start_worker(self.actor_ref))

    def _worker_is_ready(self, generation: int) -> None:
        log.info("the worker is ready (generation %d)", generation)
        self._parts.worker.open()
        self._parts.state.mark_ready()

    def _worker_died(self, died: WorkerDied) -> None:
        log.error("the worker died (generation %d): %s", died.generation, died.detail)
        if self._is_draining:
            self._parts.worker.give_up(died.detail)  # now that all requests have failed, the drain is about to end
        elif not died.was_loaded:
            self._end_run(EXIT_STARTUP_FAILED if died.generation == 0 else EXIT_WORKER_LOST, died.detail)
        elif self._generation >= self._settings.worker_respawns:
            self._end_run(EXIT_WORKER_LOST, died.detail)
        else:
            self._parts.worker.close()
            self._start_task(self._remind_of_restart)

    async def _remind_of_restart(self) -> None:
        generation = self._generation + 1
        await trio.sleep(self._respawn_pause_s * generation)
        tell_if_alive(self.actor_ref, RestartWorker(generation))

    def _restart_worker(self, generation: int) -> None:
        if self._is_draining:
            self._parts.worker.give_up("the server is on its way down")
            return
        log.warning("restarting the worker (generation %d)", generation)
        self._generation = generation
        self._start_worker()

    def _begin_drain(self, reason: str) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        self._parts.state.mark_draining()
        drain_s = self._settings.drain_s
        log.info("draining for at most %g s: %s", drain_s, reason)
        deadline = trio.current_time() + drain_s
        self._drain_scope.deadline = deadline
        self._parts.watchdog.arm(after_s=drain_s + CUT_GRACE_S + _TEARDOWN_S, exit_code=0)
        tell_if_alive(self._parts.admission, RefuseNewWork(deadline))
        self._start_task(self._drain)

    async def _drain(self) -> None:
        replies = self._parts.replies
        with self._drain_scope:
            await replies.wait_until_none()
        if replies.num_open:
            log.warning("the drain is over: cutting %d requests", replies.num_open)
            self._parts.tell_of_cut()
            tell_if_alive(self._parts.ingress, CutReplies("The server shut down before the answer was complete."))
            with trio.move_on_after(CUT_GRACE_S):
                await replies.wait_until_none()
        self._parts.state.stop(0)

    def _end_run(self, exit_code: int, problem: str) -> None:
        self._parts.tell_of_cut()
        self._parts.worker.give_up(problem)
        self._parts.watchdog.arm(after_s=_TEARDOWN_S, exit_code=exit_code)
        self._parts.state.stop(exit_code, problem)

    async def _watch_signals(self) -> None:
        with trio.open_signal_receiver(*self._signals) as arriving:
            async for number in arriving:
                is_second = self._is_draining
                tell_if_alive(
                    self.actor_ref, EndDrain() if is_second else BeginDrain(reason=signal.Signals(number).name)
                )

    def _start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        scope = trio.CancelScope()
        self._task_scopes.append(scope)

        async def run_in_scope() -> None:
            with scope:
                await task()

        self.system.nursery.start_soon(run_in_scope, name=f"{type(self).__name__}.{task.__name__}")
