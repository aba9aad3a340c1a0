"""The worker: the one thread that owns the engine, its weights and its device.

It accepts `SubmitPrompt`, `PoolTexts` and `AbortRequest` (told), and `ReportWork`, `InstallModel`, `RemoveModel` (the
models themselves pass over a shelf) and what `memra.messages.prefixes` asks for (asked). While the engine has work it
tells itself to take the next step, so that every message which arrived during a step is handled before the next one;
without work it sleeps on its mailbox. Up go the events of a step in one hop to `deliver` in the trio thread, and to
lifecycle `WorkerReady` or `WorkerDied`. It never waits for anybody.

How it fails: an engine that cannot be made, an error out of a step, or books that are found wrong when idle, end the
worker; every request that it had taken or that waited in its mailbox gets a `RequestFailed` first, which says that the
worker is lost, so that the link may keep it for the next one. An error out of a submit fails that request alone.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pykka import ActorRegistry

from memra.actors.base import ActorSystem, Ref, UnknownMessageError, tell_if_alive
from memra.actors.mailbox import refuse
from memra.actors.model_shelf import ModelShelf
from memra.actors.pulse import WorkerPulse
from memra.actors.thread_actor import ThreadActor
from memra.actors.worker_engine import WorkerEngine
from memra.errors import MemraError, OverloadedError, UnknownModelError
from memra.messages.lifecycle import WorkerDied, WorkerReady
from memra.messages.models import InstallModel, ModelInstance, RemoveModel
from memra.messages.prefixes import ExportPrefixes, ImportPrefixes, PurgeTenant, TrimPrefixes
from memra.messages.work import (
    AbortRequest,
    PoolTexts,
    ReportWork,
    RequestFailed,
    StepFinished,
    Submission,
    SubmitPrompt,
    TextsPooled,
    TokensGenerated,
    WorkEvent,
)
from memra.types import RequestId, WorkerPhase

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakeStep:
    """The worker's message to itself while there is work."""


@dataclass(frozen=True, slots=True)
class CheckIdle:
    """The worker's message to itself when the work is done: behind everything that waits, check the books."""


class GpuWorker(ThreadActor):
    """See the module. The engine is made, used and closed in this actor's thread."""

    def __init__(  # noqa: PLR0913  (keyword-only parts)
        self,
        system: ActorSystem,
        *,
        make_engine: Callable[[], WorkerEngine],
        deliver: Callable[[StepFinished], None],
        supervisor: Ref,
        pulse: WorkerPulse,
        shelf: ModelShelf | None = None,
    ) -> None:
        """Keep the parts; nothing is loaded yet.

        Args:
            system: the loop that events go to.
            make_engine: loads the weights; may take minutes.
            deliver: called in the trio thread, once for every step that has something to say.
            supervisor: is told `WorkerReady` and `WorkerDied`.
            pulse: written by this actor alone while it lives; says which generation this is.
            shelf: where models come from and go to while the engine runs; None for an engine whose models stay.
        """
        super().__init__(system)
        self._make_engine = make_engine
        self._deliver = deliver
        self._supervisor = supervisor
        self._pulse = pulse
        self._shelf = shelf or ModelShelf()
        self._generation = pulse.generation
        self._engine: WorkerEngine | None = None
        self._open: set[RequestId] = set()
        self._is_step_told = False
        self._is_idle = False

    def on_start(self) -> None:
        """Load the weights, then say so; or say that it failed, and end."""
        try:
            self._engine = self._make_engine()
        except BaseException as error:  # whatever it was, lifecycle must hear of it
            if not isinstance(error, MemraError):
                log.exception("the engine could not be made")
            ActorRegistry.unregister(self.actor_ref)
            self.actor_stopped.set()
            self._report_loss(error, was_loaded=False)
            return
        self._is_idle = True
        self._pulse.load = self._engine.load()
        self._pulse.beat(WorkerPhase.IDLE)
        tell_if_alive(self._supervisor, WorkerReady(self._generation))
        self._continue(self._engine)  # an engine may begin with work: prefixes that a predecessor left

    def handle(self, message: Any) -> Any:
        """Handle one message; see the module for those accepted."""
        engine = self._engine
        assert engine is not None  # noqa: S101  (messages are handled only after on_start succeeded)
        match message:
            case TakeStep():
                self._take_step(engine)
            case SubmitPrompt() | PoolTexts():
                self._submit(engine, message)
            case AbortRequest(request_id):
                self._open.discard(request_id)
                engine.abort(request_id)
                self._continue(engine)
            case ReportWork():
                return engine.report()
            case TrimPrefixes() | PurgeTenant() | ExportPrefixes() | ImportPrefixes():
                return self._administer(engine, message)
            case InstallModel(key):
                self._install(engine, key)
            case RemoveModel(key):
                self._remove(engine, key)
            case CheckIdle():
                if not engine.has_work:
                    engine.check_integrity()
            case _:
                raise UnknownMessageError(self, message)
        return None

    def on_stop(self) -> None:
        """Fail what is still open and free the engine."""
        self._fail_open("the worker was stopped")
        self._pulse.beat(WorkerPhase.DEAD)
        if self._engine is not None:
            self._engine.close()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Fail what is open and tell lifecycle; then free the engine, which may hang for ever on a dead driver."""
        del exception_type, traceback
        self._report_loss(exception_value or RuntimeError("unknown cause"), was_loaded=True)
        try:
            if self._engine is not None:
                self._engine.close()
        except Exception:
            log.exception("the engine could not be closed after its failure")

    def _administer(self, engine: WorkerEngine, message: object) -> object:
        match message:
            case TrimPrefixes():
                return engine.trim()
            case PurgeTenant(tenant):
                return engine.purge_tenant(tenant)
            case ExportPrefixes(force):
                return engine.export_prefixes(force=force)
            case _:
                report = engine.import_prefixes()
                self._continue(engine)
                return report

    def _take_step(self, engine: WorkerEngine) -> None:
        self._is_step_told = False
        if engine.has_work:
            started = time.monotonic()
            self._pulse.beat(WorkerPhase.BUSY)
            finished = engine.step()
            self._pulse.note_tick(time.monotonic() - started)
            self._pulse.load = engine.load()
            if finished.events:
                self._open.difference_update(_ended(finished.events))
                self.system.call_soon(self._deliver, finished)
        self._continue(engine)

    def _submit(self, engine: WorkerEngine, prompt: Submission) -> None:
        self._open.add(prompt.request_id)
        try:
            engine.submit(prompt)
        except Exception as error:
            log.exception("request %s could not be queued", prompt.request_id)
            overloaded = isinstance(error, OverloadedError)
            self._fail(RequestFailed(prompt.request_id, _describe(error), overloaded=overloaded))
        self._continue(engine)

    def _install(self, engine: WorkerEngine, key: ModelInstance) -> None:
        model = self._shelf.take(key)
        if model is None:
            return  # this worker began with it
        try:
            engine.add_model(model)
        except Exception:
            self._shelf.give_back(key, model)
            raise

    def _remove(self, engine: WorkerEngine, key: ModelInstance) -> None:
        try:
            model = engine.remove_model(key.name, key.instance)
        except UnknownModelError:
            return  # it went with the worker before
        self._shelf.give_back(key, model)
        self._continue(engine)

    def _continue(self, engine: WorkerEngine) -> None:
        if engine.has_work:
            self._is_idle = False
            self._pulse.beat(WorkerPhase.BUSY)
            if not self._is_step_told:
                self._is_step_told = True
                self.actor_ref.tell(TakeStep())
        elif not self._is_idle:
            self._is_idle = True
            self._pulse.beat(WorkerPhase.IDLE)
            self.actor_ref.tell(CheckIdle())

    def _report_loss(self, error: BaseException, *, was_loaded: bool) -> None:
        detail = error.message if isinstance(error, MemraError) else _describe(error)
        self._pulse.die(detail)
        self._fail_open(detail, is_worker_lost=True)
        tell_if_alive(self._supervisor, WorkerDied(detail, generation=self._generation, was_loaded=was_loaded))

    def _fail_open(self, detail: str, *, is_worker_lost: bool = False) -> None:
        """Fail every request that was taken, and every one that would have been: nobody may wait for a dead worker."""
        for envelope in self.actor_inbox.close():
            if isinstance(envelope.message, SubmitPrompt | PoolTexts):
                self._open.add(envelope.message.request_id)
            elif isinstance(envelope.message, AbortRequest):
                self._open.discard(envelope.message.request_id)
            elif envelope.reply_to is not None:
                refuse(envelope)
        self._fail(
            *(
                RequestFailed(request_id, detail, overloaded=True, is_worker_lost=is_worker_lost)
                for request_id in sorted(self._open)
            )
        )

    def _fail(self, *events: RequestFailed) -> None:
        self._open.difference_update(event.request_id for event in events)
        if events:
            self.system.call_soon(self._deliver, StepFinished(events, step_s=0.0))


def _ended(events: tuple[WorkEvent, ...]) -> list[RequestId]:
    return [
        event.request_id
        for event in events
        if isinstance(event, RequestFailed | TextsPooled)
        or (isinstance(event, TokensGenerated) and event.stop is not None)
    ]


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
