"""The composition root: builds every room, starts in order, stops in reverse order. Nothing else builds anything.

The order of a start: plugins, models opened and checked, address bound, actors, weights loaded in the worker's thread,
doors opened. Whatever goes wrong before the doors are open ends in one clear line and an exit code, with nothing left
running. Models that are lazy are opened when they are first asked for.
"""

import gc
import ipaddress
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from socket import socket

import trio

from memra import __version__
from memra.actors.accounting import Accounting
from memra.actors.admission import Admission
from memra.actors.base import ActorSystem, Ref, stop_actor, tell_if_alive
from memra.actors.bridge import ActorHouse
from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.actors.doorkeeper import Doorkeeper
from memra.actors.fault_injection import FaultPlan
from memra.actors.gpu_faults import GpuRecord
from memra.actors.gpu_watch import GpuSources, watch_gpu
from memra.actors.gpu_worker import GpuWorker
from memra.actors.host_loop import run_on
from memra.actors.house_stay import Stations
from memra.actors.ingress import Ingress
from memra.actors.key_desk import KeyDesk
from memra.actors.lifecycle import Lifecycle, LifecycleParts
from memra.actors.model_keeper import ModelKeeper
from memra.actors.model_listing import ModelListing
from memra.actors.model_loading import LoadingParts
from memra.actors.model_shelf import ModelShelf
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.run_state import EXIT_WORKER_LOST, RunState
from memra.actors.runtime_handles import ServerHandles
from memra.actors.shared_answers import SharedAnswers
from memra.actors.templating import Templating
from memra.actors.watchdog import Watchdog
from memra.actors.worker_engine import WorkerEngine
from memra.actors.worker_link import WorkerLink
from memra.admin_door import AdminDoor, open_admin_door
from memra.chat.tool_dialects.registry import DIALECTS, GENERIC
from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.engine.device_memory import look_at_memory
from memra.engine.engine import Engine, EngineLimits
from memra.engine.executor_choice import ExecutorChoice, choose_executor, runs_on_gpu
from memra.engine.host_shares import HostShares
from memra.engine.host_tier import open_host_store
from memra.errors import ConfigurationError, HandoffError, MemraError
from memra.gate.keyring_source import KeyringSource, open_keyring
from memra.gate.keys import KeyLaw
from memra.gate.residency import Residency
from memra.gate.response_cache import ResponseCache
from memra.http.address import address_of, bind
from memra.http.app import build_app
from memra.http.errors import status_and_code
from memra.http.plugin_routes import mount_blueprints
from memra.http.routes.models import SCHEMAS
from memra.http.serve import serve
from memra.identity import system_fingerprint
from memra.messages.models import ModelInstance, ModelsRestored
from memra.metadata.source import MetadataSource
from memra.plugins.manager import Plugins
from memra.served_models import ServedModel, ServedModels, refuse_crowding
from memra.serving_rules import admission_rules, deadline_rules, lane_policy, slot_table
from memra.settings import GateSettings, Settings
from memra.telemetry.export import SpanExport
from memra.types import ModelName, WorkerPhase

log = logging.getLogger(__name__)

_MIB = 1 << 20
_STOP_ACTOR_S = 2.0
"""What one actor may take to stop; the worker may be in the middle of a step."""
_SPANS_S = 2.0
"""For the last spans to leave; a collector that hangs keeps nobody."""
_LEAVE_S = 2.0
"""For threads that nobody knows, when all else has ended; the process ends without them."""
_EXIT_FAILED = 1
"""As the command line has it for errors that end a run."""
_HAND_ON_S = 7.0
"""For the hand-off file at the end of a drain: gigabytes, within what lifecycle's watchdog allows for the way down."""


def run(settings: Settings) -> int:
    """Serve until told to stop, and return the exit code: 0 after a drain, 70 when the worker was lost.

    Raises:
        MemraError: the server could not start; nothing is left running.
    """
    plugins = _load_plugins(settings)
    spans = SpanExport(plugins.telemetry_exporters, version=__version__)
    keyring = open_keyring(settings.gate.api_keys)
    with closing(bind(settings.http.address)) as listener, open_admin_door(settings.admin) as admin:
        _refuse_open_address(settings)
        choice = choose_executor(settings.engine)
        models = ServedModels(settings, choice, plugins)
        metadata = MetadataSource(settings.metadata.file, tuple(models.terms))
        first = _open_first(settings, models, metadata)
        plan = _Plan(settings, plugins, models, spans, first, choice, listener, keyring, metadata, admin)
        try:
            exit_code = run_on(settings.lifecycle.host_loop, partial(_run_house, plan))
        except BaseExceptionGroup as group:
            _leave_threads_behind(_EXIT_FAILED)
            raise _own_error(group) or group from None
    _leave_threads_behind(exit_code)
    return exit_code


def _leave_threads_behind(exit_code: int) -> None:
    """See to it that no thread of a plugin's keeps the process once everything else has ended."""
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in left:
        log.warning("the thread %s still runs and is left behind", thread.name)
    if left:
        Watchdog().arm(after_s=_LEAVE_S, exit_code=exit_code)


def _load_plugins(settings: Settings) -> Plugins:
    """Load what is installed; what is wrong with it is told before anything is opened."""
    plugins = Plugins(timeout_s=settings.plugins.timeout_s)
    taken = {
        "memra_commands": OWN_COMMANDS,
        "memra_feeds": SCHEMAS,
        "memra_tool_dialects": {dialect.name for dialect in (*DIALECTS, GENERIC)},
    }
    plugins.load(blocked=settings.plugins.blocked, tables=settings.plugins.table, taken=taken)
    return plugins


def _open_first(settings: Settings, models: ServedModels, metadata: MetadataSource) -> Mapping[ModelName, ServedModel]:
    """Open those that are not lazy, and say what was found."""
    first = {name: models.open(name, None, terms) for name, terms in models.terms.items() if not terms.is_lazy}
    for name, terms in models.terms.items():
        _say(f"{name}: will be loaded when it is first asked for" if terms.is_lazy else first[name].describe())
        if name in first:
            metadata.warn_of_contradictions(name, first[name].traits)
    refuse_crowding(tuple(first.values()), _limit_bytes(settings))
    return first


def _limit_bytes(settings: Settings) -> int | None:
    return settings.pool.memory_mb << 20 or None


def _own_error(group: BaseExceptionGroup) -> MemraError | None:
    """Return the first error that memra says in its own words; trio wraps what leaves a nursery."""
    for error in group.exceptions:
        own = _own_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(own, MemraError):
            return own
    return None


def _say(line: str) -> None:
    """Write one line for the person who started the server."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _refuse_open_address(settings: Settings) -> None:
    """Refuse to be open to a network without a key.

    Raises:
        ConfigurationError: says how to set a key, or how to insist.
    """
    has_keys = bool(settings.gate.api_key or settings.gate.api_keys)
    if has_keys or settings.http.allow_open_bind or _is_loopback(settings.http.address):
        return
    raise ConfigurationError(
        f"{settings.http.address} is open to the network, but there is no key; set MEMRA_API_KEY or MEMRA_API_KEYS, "
        "listen on 127.0.0.1, or insist with MEMRA_ALLOW_OPEN_BIND=1"
    )


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class _Plan:
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
class _House:
    """The running actors, in the order of their start."""

    ingress: Ref
    admission: Ref
    keeper: Ref
    templating: Ref
    binding: Ref
    shelf: ModelShelf
    worker: WorkerLink
    lifecycle: Ref
    front: ActorHouse
    backends: list[str]


async def _run_house(plan: _Plan) -> int:
    state = RunState()
    async with plan.plugins.running(), trio.open_nursery() as nursery:
        system = ActorSystem(nursery, on_death=partial(_on_death, state))
        accounting = _accounting(plan)
        house = _start_actors(plan, system, state, accounting)
        try:
            if await state.wait_until_ready():
                await _serve_until_stopped(plan, house, state, accounting)
        finally:
            with trio.CancelScope(shield=True):
                if plan.settings.host_tier.handoff is not None and state.is_drained:
                    await _hand_on(house)
                await _stop_actors(house)
            nursery.cancel_scope.cancel()
    with trio.move_on_after(_SPANS_S):
        await trio.to_thread.run_sync(plan.spans.end, abandon_on_cancel=True)
    return await state.wait_until_stopped()


async def _hand_on(house: _House) -> None:
    """Leave what is remembered of prompts to the next server; a failure costs it time and nothing else."""
    with trio.move_on_after(_HAND_ON_S) as scope:
        try:
            report = await house.front.export_prefixes(force=True)
        except MemraError as error:
            log.warning("nothing is handed on: %s", error.message)
        else:
            log.info("%d prefix entries are handed on, %.0f MB", report.entries, report.bytes / 1e6)
    if scope.cancelled_caught:
        log.warning("the hand-off file was not written within %g s", _HAND_ON_S)


def _on_death(state: RunState, name: str, error: BaseException) -> None:
    """Stop the run when an actor dies that nobody replaces; the worker's deaths are lifecycle's business."""
    if name != GpuWorker.__name__:
        log.error("%s died, the server cannot go on", name, exc_info=error)
        state.stop(EXIT_WORKER_LOST, f"{name} died")


def _accounting(plan: _Plan) -> Accounting:
    """Ask plugins for the accounting; without one, they are asked about requests alone."""
    plugins = plan.plugins
    return Accounting(
        plugins.metering(tuple(plan.models.terms)),
        describe=status_and_code,
        admit=plugins.admit,
        tell_started=plugins.request_started,
    )


def _start_actors(plan: _Plan, system: ActorSystem, state: RunState, accounting: Accounting) -> _House:
    settings = plan.settings
    replies, pulse, shelf = ReplyTable(), WorkerPulse(), ModelShelf()
    worker, faults = WorkerLink(replies.deliver), FaultPlan(settings.faults)
    catalogue = Catalogue({name: CatalogueEntry(terms) for name, terms in plan.models.terms.items()})
    backends: list[str] = []
    ingress = Ingress.start(system, replies=replies)
    admission = Admission.start(
        system,
        models=catalogue.names,
        slots=slot_table(settings.gate),
        observe=plan.plugins.request_ended,
        pulse=pulse,
        rules=admission_rules(settings),
    )
    answers = _shared_answers(settings.gate, shelf)
    residency = Residency(limit_bytes=_limit_bytes(settings), clock=trio.current_time)
    keeper = ModelKeeper.start(
        system,
        LoadingParts(residency, shelf, worker, plan.models, _forgetter(shelf, answers)),
        catalogue=catalogue,
        loaded=plan.first,
    )
    templating = Templating.start(system, renderers=shelf.renderers)
    binding = Templating.start(system, renderers=shelf.renderers)
    parts = LifecycleParts(
        state=state,
        replies=replies,
        ingress=ingress,
        admission=admission,
        worker=worker,
        pulse=pulse,
        start_worker=lambda supervisor: GpuWorker.start(
            system,
            make_engine=lambda: faults.wrap(_make_engine(plan, shelf, keeper, pulse=pulse, backends=backends)),
            deliver=worker.deliver,
            supervisor=supervisor,
            pulse=pulse,
            shelf=shelf,
        ),
        models=catalogue.names,
        gpu=_watch_gpu(plan, system),
        tell_of_cut=accounting.drain_kill,
    )
    lifecycle = Lifecycle.start(system, parts, settings=settings.lifecycle)
    stations = Stations(
        ingress,
        admission,
        templating,
        keeper,
        worker,
        context_floor_tokens=settings.gate.context_tokens,
        binding=binding,
        answers=answers,
        deadlines=deadline_rules(settings),
        accounting=accounting,
    )
    doorkeeper = Doorkeeper(KeyLaw(settings.gate.api_key), plan.keyring, authenticate=plan.plugins.authenticate)
    listing = ModelListing(
        catalogue,
        plan.metadata,
        created=int(time.time()),
        feed_schemas=plan.plugins.feed_schemas,
        render=plan.plugins.render_feed,
    )
    front = ActorHouse(
        stations, doorkeeper=doorkeeper, catalogue=catalogue, listing=listing, lifecycle=lifecycle, pulse=pulse
    )
    return _House(ingress, admission, keeper, templating, binding, shelf, worker, lifecycle, front, backends)


def _shared_answers(settings: GateSettings, shelf: ModelShelf) -> SharedAnswers | None:
    """Return what equal requests share, or None where no answers are kept."""
    if not settings.response_cache_mb:
        return None
    store = ResponseCache(settings.response_cache_mb * _MIB, ttl_s=settings.response_cache_ttl_s)
    return SharedAnswers(store, weights_of=lambda prompt: shelf.weights(ModelInstance(prompt.model, prompt.instance)))


def _forgetter(shelf: ModelShelf, answers: SharedAnswers | None) -> Callable[[ModelInstance], None]:
    """Return what is to be done about an instance that goes: its answers go with it."""
    return lambda key: None if answers is None else answers.forget(shelf.weights(key))


def _watch_gpu(plan: _Plan, system: ActorSystem) -> GpuRecord | None:
    """Start the GPU watcher where a GPU will do the work."""
    settings = plan.settings.lifecycle
    if not (settings.gpu_watch and runs_on_gpu(plan.settings.engine)):
        return None
    record = GpuRecord()
    sources = GpuSources(period_s=settings.gpu_watch_s, probe_timeout_s=settings.gpu_probe_timeout_s)
    system.nursery.start_soon(watch_gpu, record, sources)
    return record


def _make_engine(
    plan: _Plan, shelf: ModelShelf, keeper: Ref, *, pulse: WorkerPulse, backends: list[str]
) -> WorkerEngine:
    """Load every model that is to be there; runs in the worker's thread, at the start and after each restart."""
    engine = _empty_engine(plan.settings, pulse)
    restored = shelf.restore_into(engine, beat=lambda: pulse.beat(WorkerPhase.LOADING))
    backends[:] = [model.backend for model in restored]
    for model in restored:
        log.info("%s is loaded on %s", model.found, model.backend)
    tell_if_alive(keeper, ModelsRestored(restored))
    _take_handoff(engine, plan.settings)
    return engine


def _empty_engine(settings: Settings, pulse: WorkerPulse) -> Engine:
    limits = EngineLimits(
        prefix_cache_bytes=settings.engine.prefix_cache_mb << 20,
        lanes=lane_policy(settings),
        lane_window_s=settings.lanes.window_s,
        host_tier=settings.host_tier,
    )
    store = open_host_store(settings.host_tier, is_gpu=runs_on_gpu(settings.engine))
    host = HostShares(store, tenant_percent=settings.host_tier.tenant_percent)
    return Engine(progress=pulse.note_progress, limits=limits, host=host)


def _take_handoff(engine: Engine, settings: Settings) -> None:
    """Go on from what a predecessor left, if it left anything; a file that is refused is gone, and said to be."""
    path = settings.host_tier.handoff
    if path is None or not path.exists():
        return
    try:
        report = engine.import_prefixes()
    except HandoffError as error:
        log.warning("the hand-off file is not used: %s", error.message)
    else:
        log.info("reading %d prefix entries from %s", report.header_entries, path)


async def _serve_until_stopped(plan: _Plan, house: _House, state: RunState, accounting: Accounting) -> None:
    backends = tuple(dict.fromkeys(house.backends)) or (_unloaded_backend(plan),)
    fingerprint = system_fingerprint(backends, quant=plan.settings.engine.quant)
    handles = ServerHandles(
        house.front,
        state,
        look_at_memory=partial(look_at_memory, plan.settings.engine),
        keys=KeyDesk(plan.keyring),
        reload_metadata=house.front.listing.reload,
    )
    app = build_app(
        house.front, plan.settings.http, fingerprint=fingerprint, has_keys=plan.settings.gate.api_key is not None
    )
    mount_blueprints(app, plan.plugins.blueprints(handles))
    shutdown = trio.Event()
    gc.freeze()  # what is loaded now stays: collections while serving need not look at it again
    gc.enable()
    try:
        async with trio.open_nursery() as beside:
            beside.start_soon(plan.plugins.ready, handles)
            async with trio.open_nursery() as nursery:
                if plan.admin is not None:
                    routes = plan.plugins.admin_blueprints(handles)
                    await plan.admin.serve(routes, settings=plan.settings.http, nursery=nursery, shutdown=shutdown)
                    _say(f"administration is at {plan.admin.url}")
                await nursery.start(partial(serve, app, plan.listener, settings=plan.settings.http, shutdown=shutdown))
                _greet(f"http://{address_of(plan.listener)}", next(iter(plan.models.terms)), fingerprint)
                await state.wait_until_stopped()
                accounting.drain_kill()  # who is still here is made to leave
                handles.close()  # while the doors can still say so to who waits
                shutdown.set()
            beside.cancel_scope.cancel()
    finally:
        handles.close()


def _unloaded_backend(plan: _Plan) -> str:
    """What the executor of models to come is called, as far as it changes bits, where none is loaded to be asked."""
    return f"{plan.choice.kind.value}-{plan.choice.kv_type.value}-{plan.settings.engine.device}"


def _greet(url: str, model: str, fingerprint: str) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 40})
    _say(f"memra {__version__} ({fingerprint}) is listening on {url}")
    _say(f"try: curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")


async def _stop_actors(house: _House) -> None:
    """Stop in the reverse order of the start; a thread that hangs is left behind as a daemon."""
    if not await house.worker.stop(within_s=_STOP_ACTOR_S):
        log.warning("the worker did not stop in time and is left behind")
    for ref in (house.lifecycle, house.templating, house.binding, house.keeper, house.admission, house.ingress):
        await stop_actor(ref, within_s=_STOP_ACTOR_S)
    house.shelf.close()
