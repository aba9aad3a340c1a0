"""What the server tells of itself, as schemas: its models, its health, its counters.

Only described here: `memra.http.routes` write the bytes, and tests hold what they write against these schemas. Read by
`memra.http.openapi.operations`.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from memra.types import WorkerPhase

Counters = dict[str, Any]
"""Counters and gauges by name; names may be added."""


class ModelName(Struct):
    """A model by its name."""

    id: str
    object: Literal["model"]


class ModelNameList(Struct):
    """The names of all models."""

    object: Literal["list"]
    data: list[ModelName]


class Architecture(Struct):
    """What goes in and comes out, in OpenRouter's words."""

    modality: str | None
    tokenizer: None
    instruct_type: None


class Pricing(Struct):
    """Nothing costs anything; the fields are there for clients that add up."""

    prompt: str
    completion: str
    request: str
    image: str


class TopProvider(Struct):
    """Bounds in OpenRouter's words."""

    context_length: int | None
    max_completion_tokens: None


class Model(Struct):
    """A model that is served; what it does and how much it takes is null until it was opened once."""

    id: str
    name: str
    object: Literal["model"]
    created: int
    owned_by: str
    type: Literal["chat", "embedding", "rerank"] | None
    endpoints: list[str] | None
    context_length: int | None
    embedding_length: int | None
    architecture: Architecture
    pricing: Pricing
    top_provider: TopProvider


class ModelList(Struct):
    """All models."""

    object: Literal["list"]
    data: list[Model]


class PrimeProgress(Struct):
    """How far the prompts are that are being computed."""

    rows: int
    chunks: int
    age_ms: int | None


class GpuProbe(Struct):
    """What came of the last question to the GPU's driver."""

    state: str
    age_ms: int | None
    took_ms: int | None
    hangs: int


class WorkerHealth(Struct):
    """The model worker."""

    phase: WorkerPhase
    beat_age_ms: int
    tick_max_ms: int
    stall_threshold_ms: int
    generation: int
    xid_warnings: int
    forward_progress_age_ms: int | None
    prime_progress: PrimeProgress | None
    gpu_probe: GpuProbe | None
    scheduler_phase: str
    idle_for_ms: int | None


class Health(Struct):
    """How the server is; docs/reference/health.md says what the fields mean."""

    status: Literal["ok", "ready", "draining", "unhealthy", "not_ready"]
    models: list[str]
    worker: WorkerHealth
    detail: str | UnsetType = UNSET
