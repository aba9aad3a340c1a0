"""The running house put together: its actors in the order of their start, and their end in reverse.

Trade: a part of the composition root, called by `memra.app` alone. Refuses to know how a process begins, what is
printed, and how requests come in.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from socket import socket

import trio

from memra.actors.accounting import Accounting
from memra.actors.admission import Admission
from memra.actors.base import ActorSystem, Ref, stop_actor
from memra.actors.bridge import ActorHouse
from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.actors.doorkeeper import Doorkeeper
from memra.actors.fault_injection import FaultPlan
from memra.actors.gpu_faults import GpuRecord
from memra.actors.gpu_watch import GpuSources, watch_gpu
from memra.actors.gpu_worker import GpuWorker
from memra.actors.house_stay import Stations
from memra.actors.ingress import Ingress
from memra.actors.lifecycle import Lifecycle, LifecycleParts
from memra.actors.model_keeper import ModelKeeper
from memra.actors.model_listing import ModelListing
from memra.actors.model_loading import LoadingParts
from memra.actors.model_shelf import ModelShelf
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.run_state import RunState
from memra.actors.shared_answers import SharedAnswers
from memra.actors.templating import Templating
from memra.actors.worker_engine import WorkerEngine
from memra.actors.worker_link import WorkerLink
from memra.admin_door import AdminDoor
from memra.engine.executor_choice import ExecutorChoice, runs_on_gpu
from memra.engine_start import make_engine
from memra.gate.keyring_source import KeyringSource
from memra.gate.keys import KeyLaw
from memra.gate.residency import Residency
from memra.gate.response_cache import ResponseCache
from memra.messages.models import ModelInstance
from memra.metadata.source import MetadataSource
from memra.plugins.manager import Plugins
from memra.served_models import ServedModel, ServedModels
from memra.serving_rules import admission_rules, deadline_rules, slot_table
from memra.settings import GateSettings, Settings
from memra.telemetry.export import SpanExport
from memra.types import ModelName

log = logging.getLogger(__name__)

_MIB = 1 << 20
_STOP_ACTOR_S = 2.0
"""What one actor may take to stop; the worker may be in the middle of a step."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is known before the loop runs."""

    settings: Settings
    plugins: Plugins
    models: ServedModels
    spans: SpanExport
    first: Mapping[ModelName, ServedModel]
    choice: ExecutorChoice
    listener: socket
    keyring: KeyringSource | None
    metadata: MetadataSource
    admin: AdminDoor | None


@dataclass(frozen=True, slots=True)
class _Shared:
    """What several actors hold together."""

    catalogue: Catalogue
    replies: ReplyTable
    worker: WorkerLink
    answers: SharedAnswers | None
    shelf: ModelShelf
    pulse: WorkerPulse = field(default_factory=WorkerPulse)
    backends: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class House:
    """The running actors.

    Attributes:
        stations: where requests pass.
        lifecycle: started last.
        front: how the rest of the program sees them all.
        shelf: has the models' files.
        backends: what the loaded models' executors are called, as far as it changes bits.
    """

    stations: Stations
    lifecycle: Ref
    front: ActorHouse
    shelf: ModelShelf
    backends: list[str]

    async def stop(self) -> None:
        """Stop in the reverse order of the start; a thread that hangs is left behind as a daemon."""
        stations = self.stations
        if not await stations.worker.stop(within_s=_STOP_ACTOR_S):
            log.warning("the worker did not stop in time and is left behind")
        upstairs = (stations.templating, stations.binding, stations.keeper, stations.admission, stations.ingress)
        for ref in (self.lifecycle, *upstairs):
            await stop_actor(ref, within_s=_STOP_ACTOR_S)
        self.shelf.close()


def start_house(plan: Plan, system: ActorSystem, state: RunState, accounting: Accounting) -> House:
    """Start every actor; models are loaded behind this, in the worker's thread."""
    shared = _make_shared(plan)
    stations = _start_stations(plan, system, shared, accounting)
    lifecycle = _start_lifecycle(plan, system, state, shared=shared, stations=stations)
    settings = plan.settings
    front = ActorHouse(
        stations,
        doorkeeper=Doorkeeper(KeyLaw(settings.gate.api_key), plan.keyring, authenticate=plan.plugins.authenticate),
        catalogue=shared.catalogue,
        listing=ModelListing(
            shared.catalogue,
            plan.metadata,
            created=int(time.time()),
            feed_schemas=plan.plugins.feed_schemas,
            render=plan.plugins.render_feed,
        ),
        lifecycle=lifecycle,
        pulse=shared.pulse,
    )
    return House(stations, lifecycle, front, shared.shelf, shared.backends)


def limit_bytes(settings: Settings) -> int | None:
    """Return what all models together may take; None without a bound."""
    return settings.pool.memory_mb << 20 or None


def _make_shared(plan: Plan) -> _Shared:
    replies, shelf = ReplyTable(), ModelShelf()
    return _Shared(
        catalogue=Catalogue({name: CatalogueEntry(terms) for name, terms in plan.models.terms.items()}),
        replies=replies,
        worker=WorkerLink(replies.deliver),
        answers=_shared_answers(plan.settings.gate, shelf),
        shelf=shelf,
    )


def _start_stations(plan: Plan, system: ActorSystem, shared: _Shared, accounting: Accounting) -> Stations:
    settings = plan.settings
    ingress = Ingress.start(system, replies=shared.replies)
    admission = Admission.start(
        system,
        models=shared.catalogue.names,
        slots=slot_table(settings.gate),
        observe=plan.plugins.request_ended,
        pulse=shared.pulse,
        rules=admission_rules(settings),
    )
    residency = Residency(limit_bytes=limit_bytes(settings), clock=trio.current_time)
    forget = _forgetter(shared.shelf, shared.answers)
    keeper = ModelKeeper.start(
        system,
        LoadingParts(residency, shared.shelf, shared.worker, plan.models, forget),
        catalogue=shared.catalogue,
        loaded=plan.first,
    )
    return Stations(
        ingress,
        admission,
        Templating.start(system, renderers=shared.shelf.renderers),
        keeper,
        shared.worker,
        context_floor_tokens=settings.gate.context_tokens,
        binding=Templating.start(system, renderers=shared.shelf.renderers),
        answers=shared.answers,
        deadlines=deadline_rules(settings),
        accounting=accounting,
    )


def _start_lifecycle(plan: Plan, system: ActorSystem, state: RunState, *, shared: _Shared, stations: Stations) -> Ref:
    faults, shelf, pulse = FaultPlan(plan.settings.faults), shared.shelf, shared.pulse

    def note_backends(backends: list[str]) -> None:
        shared.backends[:] = backends

    def load() -> WorkerEngine:
        keeper = stations.keeper
        return faults.wrap(make_engine(plan.settings, shelf, keeper=keeper, pulse=pulse, note_backends=note_backends))

    def start_worker(supervisor: Ref) -> Ref:
        deliver = shared.worker.deliver
        return GpuWorker.start(
            system, make_engine=load, deliver=deliver, supervisor=supervisor, pulse=pulse, shelf=shelf
        )

    parts = LifecycleParts(
        state=state,
        replies=shared.replies,
        ingress=stations.ingress,
        admission=stations.admission,
        worker=shared.worker,
        pulse=pulse,
        start_worker=start_worker,
        models=shared.catalogue.names,
        gpu=_watch_gpu(plan.settings, system),
        tell_of_cut=stations.accounting.drain_kill,
    )
    return Lifecycle.start(system, parts, settings=plan.settings.lifecycle)


def _shared_answers(settings: GateSettings, shelf: ModelShelf) -> SharedAnswers | None:
    """Return what equal requests share, or None where no answers are kept."""
    if not settings.response_cache_mb:
        return None
    store = ResponseCache(settings.response_cache_mb * _MIB, ttl_s=settings.response_cache_ttl_s)
    return SharedAnswers(store, weights_of=lambda prompt: shelf.weights(ModelInstance(prompt.model, prompt.instance)))


def _forgetter(shelf: ModelShelf, answers: SharedAnswers | None) -> Callable[[ModelInstance], None]:
    """Return what is to be done about an instance that goes: its answers go with it."""
    return lambda key: None if answers is None else answers.forget(shelf.weights(key))


def _watch_gpu(settings: Settings, system: ActorSystem) -> GpuRecord | None:
    """Start the GPU watcher where a GPU will do the work."""
    watch = settings.lifecycle
    if not (watch.gpu_watch and runs_on_gpu(settings.engine)):
        return None
    record = GpuRecord()
    sources = GpuSources(period_s=watch.gpu_watch_s, probe_timeout_s=watch.gpu_probe_timeout_s)
    system.nursery.start_soon(watch_gpu, record, sources)
    return record
