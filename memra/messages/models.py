"""Between those who use models and the keeper that has them loaded: leases, orders, and what lies in memory.

Several instances of one name may live at once, while requests finish on weights that were replaced meanwhile; every
message that is about weights names the instance.
"""

from dataclasses import dataclass
from enum import StrEnum

from memra.types import ModelName, RequestId


class ModelState(StrEnum):
    """Where a model is on its way into memory and out of it."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    FAILED = "failed"
    """Unloaded, and its last load went wrong; the next request tries again."""


@dataclass(frozen=True, slots=True)
class ModelInstance:
    """One set of loaded weights.

    Attributes:
        instance: 0 for the first load under a name, +1 for each further one.
    """

    name: ModelName
    instance: int

    def __str__(self) -> str:
        """As logs name it."""
        return f"{self.name} (instance {self.instance})"


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """On which terms a model is served: how it lies in memory, and what its prompts are told.

    Attributes:
        is_lazy: loaded when it is first asked for, not at the start.
        is_pinned: neither evicted nor unloaded for idleness.
        idle_ttl_s: unloaded when unused for so long, seconds; 0 keeps it.
        kv_memory_mb: MiB for its keys and values; None takes the server's setting.
        has_generic_tools: told of tools in words where its template has no place for them.
    """

    is_lazy: bool = False
    is_pinned: bool = False
    idle_ttl_s: float = 0.0
    kv_memory_mb: int | None = None
    has_generic_tools: bool = False


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What was found in a model, beside its task and its context.

    Attributes:
        architecture: as its file names it.
        quantization: how exactly most of its weights are stored, a word of `memra.loading.precision`; None where no
            word would be true.
        tokenizer: the family of its tokenizer, or None.
        has_tools: its chat template takes tools.
        can_reason: its thoughts are told apart from its answers.
        caches_prompts: what was computed for a prompt is used again for the next that begins alike.
        speaks_chatml: turns stand between ChatML's marks.
    """

    architecture: str | None = None
    quantization: str | None = None
    tokenizer: str | None = None
    has_tools: bool = False
    can_reason: bool = False
    caches_prompts: bool = False
    speaks_chatml: bool = False


UNKNOWN_TRAITS = ModelTraits()
"""Of a model that was never opened."""


@dataclass(frozen=True, slots=True)
class LeaseModel:
    """Ask for a model to run a request on; answered with a ticket for `ModelLeased`.

    Told to leave by `ReturnModel`, whether or not the ticket was granted by then.
    """

    request_id: RequestId
    model: ModelName


@dataclass(frozen=True, slots=True)
class ModelLeased:
    """These weights stay until `ReturnModel`.

    Attributes:
        context_tokens: the longest sequence that the instance serves.
        identity: differs for other weights.
    """

    held: ModelInstance
    context_tokens: int
    identity: str


@dataclass(frozen=True, slots=True)
class ReturnModel:
    """The request needs its model no more, or no longer waits for it; unknown ids are ignored."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model, in place of the one of this name if there is one; answered with a ticket for `ModelInstance`.

    Attributes:
        source: as in `NAME=SOURCE`; None takes the one that the name had before.
        terms: None takes those that the name had before.
    """

    name: ModelName
    source: str | None = None
    terms: ModelTerms | None = None


@dataclass(frozen=True, slots=True)
class WithdrawLoad:
    """Take a `LoadModel` back: whoever asked for it waits no more, and nothing is loaded for nobody.

    Attributes:
        ticket: with which it was answered.
    """

    ticket: object


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Let a model go once its last request has ended; the next request loads it again.

    Answered with whether it was loaded.
    """

    name: ModelName


@dataclass(frozen=True, slots=True)
class PinModel:
    """Keep a model in memory whatever else wants room there, or stop keeping it."""

    name: ModelName
    is_pinned: bool = True


@dataclass(frozen=True, slots=True)
class ReportModels:
    """Ask for a tuple of `ModelReported`, in configured order."""


@dataclass(frozen=True, slots=True)
class ModelReported:
    """One name and what of it lies in memory.

    Attributes:
        instance: the one that new requests get; None while there is none.
        num_bytes: of all instances of this name, those included that were replaced and finish their requests.
        num_leases: requests on all of them.
        num_waiting: requests that wait for its load.
        context_tokens: None until it was opened once.
    """

    name: ModelName
    state: ModelState
    instance: int | None
    num_bytes: int
    num_leases: int
    num_waiting: int
    terms: ModelTerms
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class InstallModel:
    """Ask the worker to take a loaded model from the shelf; answered when it serves it."""

    taken: ModelInstance


@dataclass(frozen=True, slots=True)
class RemoveModel:
    """Ask the worker to put a model back on the shelf; answered when it is there, or was unknown."""

    removed: ModelInstance


@dataclass(frozen=True, slots=True)
class ModelMeasured:
    """A model in the worker.

    Attributes:
        backend: that runs it.
        num_bytes: that it takes; None where its executor cannot tell.
    """

    found: ModelInstance
    backend: str
    num_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ModelsRestored:
    """A worker has begun with these models."""

    models: tuple[ModelMeasured, ...]
