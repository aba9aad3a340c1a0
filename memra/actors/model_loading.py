"""One load from files to the worker, and one removal back: what has to wait, so that the keeper need not.

Trade: opens and builds in threads of trio's pool, so that neither the loop nor the worker's steps stand still; makes
room by the residency's book before memory is used; hands over by the shelf. A load that fails puts everything back as
it was, the models included that were evicted for it. It refuses to know leases and waiters, which are the keeper's. Its
tasks run in the trio thread; the keeper runs one load at a time, removals beside it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio
from pykka import ActorDeadError

from memra.actors.model_shelf import ModelShelf, OpenedModel, measured_bytes
from memra.actors.worker_link import WorkerLink
from memra.engine.loaded_model import LoadedModel
from memra.errors import (
    ConfigurationError,
    CorruptFileError,
    ModelLoadError,
    OverloadedError,
    RequestError,
    SourceError,
    UnsupportedModelError,
)
from memra.gate.residency import Residency
from memra.messages.models import InstallModel, ModelInstance, ModelMeasured, ModelTerms, RemoveModel
from memra.types import ModelName

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_MIB = 1 << 20
_NO_ROOM_RETRY_S = 10.0
"""About the time in which an answer ends and gives its model back; nobody can know better."""
_LOAD_RETRY_S = 30.0
"""A failed load is seldom mended sooner, and every try opens the files again."""

_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (SourceError, "its source cannot be found or fetched"),
    (CorruptFileError, "its file is damaged"),
    (UnsupportedModelError, "it needs something that this server does not run"),
    (ConfigurationError, "it does not fit this server's settings"),
    (MemoryError, "memory ran out"),
)
"""What a client may know of a failed load; the error itself may name paths, and goes to the log."""


class ModelOpener(Protocol):
    """Finds and opens models; called from any thread."""

    def open(self, name: ModelName, source: str | None, terms: ModelTerms) -> OpenedModel:
        """Open a model's files and understand them; fetches them first if need be.

        Args:
            name: under which it will be served.
            source: as a user writes it; None takes what is configured for the name.
            terms: on which it will lie in memory.

        Raises:
            StartupError: names what is wrong.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadingParts:
    """What loads and removals work with.

    Attributes:
        residency: the book; shared with the keeper, both in the trio thread.
        shelf: the way to the worker for what no message carries.
        worker: the way for messages.
        opener: finds and opens models.
        forget: called before an instance goes, for whoever keeps something of it; quick, in the trio thread.
    """

    residency: Residency
    shelf: ModelShelf
    worker: WorkerLink
    opener: ModelOpener
    forget: Callable[[ModelInstance], None]


class ModelLoading:
    """See the module."""

    def __init__(self, parts: LoadingParts, *, reload: Callable[[ModelName], None]) -> None:
        """Take the parts.

        Args:
            parts: see there.
            reload: called for each model that was evicted for a load that failed then.
        """
        self._residency = parts.residency
        self._shelf = parts.shelf
        self._worker = parts.worker
        self._opener = parts.opener
        self._forget = parts.forget
        self._reload = reload
        self._left = trio.Event()
        self._restored = trio.Event()

    async def load(self, name: ModelName, source: str | None, terms: ModelTerms) -> ModelInstance:
        """Load a model until the worker serves it; the instance is current then.

        Raises:
            ModelLoadError: it cannot be loaded; in words for a client, while the log has the cause.
            OverloadedError: there is no room for it at the moment.
        """
        key = self._residency.begin_load(name)
        evicted: list[ModelInstance] = []
        try:
            await self._load(key, source, terms, evicted=evicted)
        except Exception as error:
            self._residency.forget(key)
            for victim in evicted:
                self._reload(victim.name)
            if isinstance(error, RequestError):
                raise
            log.exception("model %s could not be loaded", name, exc_info=error)
            raise _for_clients(name, error) from error
        log.info("%s is loaded", key)
        return key

    async def remove(self, key: ModelInstance) -> None:
        """Take a retired, unused instance out of the worker and free its memory."""
        self._forget(key)
        self._shelf.strike(key)
        try:
            await self._worker.ask(RemoveModel(key))
        except ActorDeadError:
            log.debug("%s went with its worker", key)
        except Exception:
            log.exception("%s could not be taken out of the worker", key)
        await self._close(key)
        self._residency.forget(key)
        left, self._left = self._left, trio.Event()
        left.set()
        log.info("%s is unloaded", key)

    def note_restored(self, models: tuple[ModelMeasured, ...]) -> None:
        """A worker has begun with these models."""
        for model in models:
            if model.num_bytes is not None and self._residency.holds(model.found):
                self._residency.measure(model.found, model.num_bytes)
        restored, self._restored = self._restored, trio.Event()
        restored.set()

    async def _load(
        self, key: ModelInstance, source: str | None, terms: ModelTerms, *, evicted: list[ModelInstance]
    ) -> None:
        opened = await _in_thread(lambda: self._opener.open(key.name, source, terms))
        try:
            await self._make_room(key, opened.num_bytes, evicted=evicted)
            model = await _in_thread(opened.build)
        except Exception:
            opened.close()
            raise
        self._shelf.put(key, opened, model)
        try:
            await self._book_measured(key, model, evicted=evicted)
            await self._install(key)
        except Exception:
            self._shelf.strike(key)
            await self._close(key)
            raise

    async def _make_room(self, key: ModelInstance, num_bytes: int, *, evicted: list[ModelInstance]) -> None:
        victims = self._residency.reserve(key, num_bytes)
        if victims is None:
            raise self._no_room(key.name, num_bytes)
        evicted += victims
        await self._remove_all(victims)

    async def _book_measured(self, key: ModelInstance, model: LoadedModel, *, evicted: list[ModelInstance]) -> None:
        num_bytes = measured_bytes(model)
        if num_bytes is None:
            return
        victims = self._residency.reserve(key, num_bytes)
        if victims is None:
            log.warning("%s takes %d MiB, which is over MEMRA_MEMORY_MB with what is in use", key, num_bytes // _MIB)
            self._residency.measure(key, num_bytes)
            return
        evicted += victims
        await self._remove_all(victims)

    async def _remove_all(self, victims: tuple[ModelInstance, ...]) -> None:
        """Remove these, and wait for those whose removal is under way: only then is their memory free."""
        async with trio.open_nursery() as removals:
            for victim in victims:
                log.info("%s is evicted", victim)
                removals.start_soon(self.remove, victim)
        while self._residency.leaving():
            await self._left.wait()

    async def _install(self, key: ModelInstance) -> None:
        while True:
            restored = self._restored
            try:
                await self._worker.ask(InstallModel(key))
            except ActorDeadError:
                await restored.wait()  # a new worker; it may have begun with the instance already, or looked too early
            else:
                return

    async def _close(self, key: ModelInstance) -> None:
        try:
            await _in_thread(lambda: self._shelf.close_struck(key))
        except Exception:
            log.exception("%s could not be closed", key)

    def _no_room(self, name: ModelName, num_bytes: int) -> RequestError:
        limit_mb = (self._residency.limit_bytes or 0) // _MIB
        needs = f"Model {name} needs {-(-num_bytes // _MIB):,} MiB"
        if not self._residency.fits_ever(num_bytes):
            return ModelLoadError(f"{needs}, more than all of MEMRA_MEMORY_MB ({limit_mb:,} MiB).", retry_after_s=60.0)
        return OverloadedError(
            f"{needs} of MEMRA_MEMORY_MB ({limit_mb:,} MiB), which other models hold for running requests or are "
            "pinned to; try again shortly.",
            retry_after_s=_NO_ROOM_RETRY_S,
        )


def _for_clients(name: ModelName, error: BaseException) -> ModelLoadError:
    cause = next((words for kind, words in _CAUSES if isinstance(error, kind)), "the server's log names the cause")
    return ModelLoadError(f"Model {name} could not be loaded: {cause}.", retry_after_s=_LOAD_RETRY_S)


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run blocking work beside the loop; cancelling leaves it behind, for it may take minutes.

    Raises:
        RuntimeError: in place of a `SystemExit` or its like, such as a panic in native code, which would end the loop.
    """

    def contained() -> Result:
        try:
            return work()
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"ended by {type(error).__name__}") from error

    return await trio.to_thread.run_sync(contained, abandon_on_cancel=True)
