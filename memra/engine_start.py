"""The worker's engine put together: a part of the composition root.

Trade: an empty engine by the settings, the models that are to be there, and what a predecessor left of prompts. Runs in
the worker's thread, at the start and after each restart. Refuses to know who asks the worker for anything.
"""

import logging
from collections.abc import Callable

from memra.actors.base import Ref, tell_if_alive
from memra.actors.model_shelf import ModelShelf
from memra.actors.pulse import WorkerPulse
from memra.engine.engine import Engine, EngineLimits
from memra.engine.executor_choice import runs_on_gpu
from memra.engine.host_shares import HostShares
from memra.engine.host_tier import open_host_store
from memra.errors import HandoffError
from memra.messages.models import ModelsRestored
from memra.serving_rules import lane_policy
from memra.settings import Settings
from memra.types import WorkerPhase

log = logging.getLogger(__name__)


def make_engine(
    settings: Settings,
    shelf: ModelShelf,
    *,
    keeper: Ref,
    pulse: WorkerPulse,
    note_backends: Callable[[list[str]], None],
) -> Engine:
    """Load every model that is to be there.

    Args:
        settings: of the server.
        shelf: has the models' files.
        keeper: is told what was loaded.
        pulse: beats while models are loaded.
        note_backends: told what the models' executors are called, as far as it changes bits.
    """
    engine = _empty_engine(settings, pulse)
    restored = shelf.restore_into(engine, beat=lambda: pulse.beat(WorkerPhase.LOADING))
    note_backends([model.backend for model in restored])
    for model in restored:
        log.info("%s is loaded on %s", model.found, model.backend)
    tell_if_alive(keeper, ModelsRestored(restored))
    _take_handoff(engine, settings)
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
