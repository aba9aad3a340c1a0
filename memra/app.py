"""The composition root: builds every room, starts in order, stops in reverse order.

Its parts are `house` (the actors), `engine_start` (the worker's engine) and `admin_door`; nothing else builds anything.

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
from collections.abc import Mapping
from contextlib import closing
from functools import partial

import trio

from memra import __version__
from memra.actors.accounting import Accounting
from memra.actors.base import ActorSystem
from memra.actors.gpu_worker import GpuWorker
from memra.actors.host_loop import run_on
from memra.actors.key_desk import KeyDesk
from memra.actors.run_state import EXIT_WORKER_LOST, RunState
from memra.actors.runtime_handles import ServerHandles
from memra.actors.watchdog import Watchdog
from memra.admin_door import open_admin_door
from memra.chat.tool_dialects.registry import DIALECTS, GENERIC
from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.engine.device_memory import look_at_memory
from memra.engine.executor_choice import choose_executor
from memra.errors import ConfigurationError, MemraError
from memra.gate.keyring_source import open_keyring
from memra.house import House, Plan, limit_bytes, start_house
from memra.http.address import address_of, bind
from memra.http.app import build_app
from memra.http.errors import status_and_code
from memra.http.plugin_routes import mount_blueprints
from memra.http.routes.models import SCHEMAS
from memra.http.serve import serve
from memra.identity import system_fingerprint
from memra.metadata.source import MetadataSource
from memra.plugins.manager import Plugins
from memra.served_models import ServedModel, ServedModels, refuse_crowding
from memra.settings import Settings
from memra.telemetry.export import SpanExport
from memra.types import ModelName

log = logging.getLogger(__name__)

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
        plan = Plan(settings, plugins, models, spans, first, choice, listener, keyring, metadata, admin)
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
    refuse_crowding(tuple(first.values()), limit_bytes(settings))
    return first


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


async def _run_house(plan: Plan) -> int:
    state = RunState()
    async with plan.plugins.running(), trio.open_nursery() as nursery:
        system = ActorSystem(nursery, on_death=partial(_on_death, state))
        accounting = _accounting(plan)
        house = start_house(plan, system, state, accounting)
        try:
            if await state.wait_until_ready():
                await _serve_until_stopped(plan, house, state, accounting)
        finally:
            with trio.CancelScope(shield=True):
                if plan.settings.host_tier.handoff is not None and state.is_drained:
                    await _hand_on(house)
                await house.stop()
            nursery.cancel_scope.cancel()
    with trio.move_on_after(_SPANS_S):
        await trio.to_thread.run_sync(plan.spans.end, abandon_on_cancel=True)
    return await state.wait_until_stopped()


async def _hand_on(house: House) -> None:
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


def _accounting(plan: Plan) -> Accounting:
    """Ask plugins for the accounting; without one, they are asked about requests alone."""
    plugins = plan.plugins
    return Accounting(
        plugins.metering(tuple(plan.models.terms)),
        describe=status_and_code,
        admit=plugins.admit,
        tell_started=plugins.request_started,
    )


async def _serve_until_stopped(plan: Plan, house: House, state: RunState, accounting: Accounting) -> None:
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


def _unloaded_backend(plan: Plan) -> str:
    """What the executor of models to come is called, as far as it changes bits, where none is loaded to be asked."""
    return f"{plan.choice.kind.value}-{plan.choice.kv_type.value}-{plan.settings.engine.device}"


def _greet(url: str, model: str, fingerprint: str) -> None:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 40})
    _say(f"memra {__version__} ({fingerprint}) is listening on {url}")
    _say(f"try: curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
