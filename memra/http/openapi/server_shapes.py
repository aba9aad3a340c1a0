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
    """The names of all models; a feed of a marketplace has keys of its own."""

    object: Literal["list"]
    data: list[ModelName]


class Architecture(Struct):
    """What goes in and comes out, in OpenRouter's words."""

    modality: str | None
    tokenizer: str | None
    instruct_type: Literal["chatml", "gemma"] | None


class Pricing(Struct):
    """US dollars for one token or one request; zero where nothing is declared, for clients that add up."""

    prompt: str
    completion: str
    request: str
    image: str


class MillionPricing(Struct):
    """US dollars for a million tokens, as far as they are declared."""

    currency: Literal["USD"]
    input: str | UnsetType = UNSET
    cached_input: str | UnsetType = UNSET
    cache_write: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class Reliability(Struct):
    """Within how many seconds something is promised."""

    first_token_s: int | UnsetType = UNSET
    token_gap_s: int | UnsetType = UNSET
    answer_s: int | UnsetType = UNSET


class Provider(Struct):
    """Whoever runs the server, as declared."""

    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    api_base_url: str | UnsetType = UNSET
    auth_type: str | UnsetType = UNSET
    regions: list[str] | UnsetType = UNSET
    compatibility: str | UnsetType = UNSET
    created: int | UnsetType = UNSET
    updated: int | UnsetType = UNSET


class Capabilities(Struct):
    """What may be asked of a model."""

    streaming: bool
    tools: bool
    structured_output: bool
    reasoning: bool
    prompt_caching: bool


class TopProvider(Struct):
    """Bounds in OpenRouter's words."""

    context_length: int | None
    max_completion_tokens: int | None


class Model(Struct):
    """A model that is served; what it does and how much it takes is null until it was opened once."""

    id: str
    name: str
    object: Literal["model"]
    created: int
    owned_by: str
    contract_version: str
    type: Literal["chat", "embedding", "rerank"] | None
    endpoints: list[str] | None
    capabilities: Capabilities | None
    context_length: int | None
    embedding_length: int | None
    architecture: Architecture
    pricing: Pricing
    top_provider: TopProvider
    description: str | UnsetType = UNSET
    lifecycle: Literal["preview", "stable", "deprecated"] | UnsetType = UNSET
    deprecation_date: str | UnsetType = UNSET
    reliability: Reliability | UnsetType = UNSET
    pricing_per_million_tokens: MillionPricing | UnsetType = UNSET
    provider: Provider | UnsetType = UNSET


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
