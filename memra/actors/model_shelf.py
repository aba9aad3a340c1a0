"""Where models pass between the loader's threads and the worker: messages name an instance, its weights lie here.

Trade: holds what is opened, what is loaded and not yet taken, and what was given back and not yet closed; and the list
of models that a worker must begin with, so that a restarted one serves what its predecessor did. It decides nothing.
Any thread may call it. One for the life of the server.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from memra.actors.templating import Renderer
from memra.actors.worker_engine import WorkerEngine
from memra.engine.loaded_model import LoadedModel
from memra.messages.models import ModelInstance, ModelMeasured, ModelTraits
from memra.types import ModelTask


class OpenedModel(Protocol):
    """A model whose files are open and understood, and whose weights can be loaded any number of times."""

    @property
    def context_tokens(self) -> int:
        """The longest sequence that it will serve."""
        ...

    @property
    def identity(self) -> str:
        """Differs for other weights."""
        ...

    @property
    def num_bytes(self) -> int:
        """An estimate of what it will take in memory once its weights are loaded."""
        ...

    @property
    def task(self) -> ModelTask:
        """What it does with text."""
        ...

    @property
    def embedding_width(self) -> int | None:
        """Values of one of its vectors; None for a model that makes none."""
        ...

    @property
    def traits(self) -> ModelTraits:
        """What else was found in it."""
        ...

    @property
    def renderer(self) -> Renderer:
        """Its way from words to tokens."""
        ...

    def build(self) -> LoadedModel:
        """Load the weights; seconds to minutes.

        Raises:
            StartupError: they cannot be loaded.
        """
        ...

    def close(self) -> None:
        """Let go of the files; called after everything that was built from them is closed."""
        ...


class ModelShelf:
    """See the module.

    Attributes:
        renderers: of every listed instance; read by templating's thread.
    """

    def __init__(self) -> None:
        self.renderers: dict[ModelInstance, Renderer] = {}
        self._lock = threading.Lock()
        self._opened: dict[ModelInstance, OpenedModel] = {}
        self._ready: dict[ModelInstance, LoadedModel] = {}
        self._removed: dict[ModelInstance, LoadedModel] = {}
        self._struck: dict[ModelInstance, OpenedModel] = {}

    def put(self, key: ModelInstance, opened: OpenedModel, model: LoadedModel | None = None) -> None:
        """List an instance: the worker takes it when it is told to, a restarted one in any case.

        Args:
            key: names it.
            opened: it is built from this again after a restart, and now too where `model` is None.
            model: loaded.
        """
        if model is not None:
            model.instance = key.instance
        self.renderers[key] = opened.renderer
        with self._lock:
            self._opened[key] = opened
            if model is not None:
                self._ready[key] = model

    def opened(self, key: ModelInstance) -> OpenedModel:
        """What a listed instance was built from."""
        return self._opened[key]

    def weights(self, key: ModelInstance) -> str:
        """Name the weights of a listed instance: no other's in this process, and no other file's, has that name."""
        return f"{key} {self._opened[key].identity}"

    def strike(self, key: ModelInstance) -> None:
        """Take an instance off the list, so that no restart brings it back; unknown ones are ignored."""
        self.renderers.pop(key, None)
        with self._lock:
            opened = self._opened.pop(key, None)
            if opened is not None:
                self._struck[key] = opened

    def close_struck(self, key: ModelInstance) -> None:
        """Free the weights that were given back or never taken, and then the files; may take a while."""
        with self._lock:
            models = [held.pop(key, None) for held in (self._ready, self._removed)]
            opened = self._struck.pop(key, None)
        for model in models:
            if model is not None:
                model.executor.close()
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Free all that no worker holds; called at the end, when the worker is gone."""
        with self._lock:
            keys = {*self._opened, *self._struck}
        for key in keys:
            self.strike(key)
            self.close_struck(key)

    def take(self, key: ModelInstance) -> LoadedModel | None:
        """Take a loaded model off the shelf; None when the worker began with it."""
        with self._lock:
            return self._ready.pop(key, None)

    def give_back(self, key: ModelInstance, model: LoadedModel) -> None:
        """Leave a model that is served no more, to be closed by another thread."""
        with self._lock:
            self._removed[key] = model

    def restore_into(self, engine: WorkerEngine, *, beat: Callable[[], None]) -> tuple[ModelMeasured, ...]:
        """Give a new engine every listed model, loaded anew where it is not ready; runs in the worker's thread.

        Args:
            engine: without models.
            beat: called after each.

        Raises:
            StartupError: a model cannot be loaded.
        """
        with self._lock:
            listed = dict(self._opened)
        restored = []
        for key, opened in listed.items():
            model = self.take(key) or opened.build()
            model.instance = key.instance
            engine.add_model(model)
            restored.append(ModelMeasured(key, model.executor.backend, measured_bytes(model)))
            beat()
        return tuple(restored)


def measured_bytes(model: LoadedModel) -> int | None:
    """Bytes that a loaded model takes; None where its executor cannot tell."""
    num_bytes: int | None = getattr(model.executor, "num_bytes", None)
    return num_bytes
