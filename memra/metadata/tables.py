"""The tables of the metadata file, as types: what may be written, and within which bounds.

Refuses to know files, and what is done with the values. Names and bounds are those that OpenRouter's provider schema
(2.4) and the OpenModels registry take, so that no feed can turn out invalid because of what stands here. Every key may
be left out: what is not declared is not published.
"""

from datetime import date
from typing import Annotated, Literal

from msgspec import Meta, Struct

LARGEST = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly (RFC 8259, section 6)."""

Quantization = Literal[
    "int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32"
]  # fmt: skip
Surface = Literal["chat", "embedding", "rerank", "transcription"]
Effort = Literal["none", "minimal", "low", "medium", "high"]
Licence = Literal[
    "proprietary", "apache-2.0", "mit", "gpl-3.0", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "other"
]  # fmt: skip

Price = Annotated[str, Meta(pattern=r"\A[0-9]+(\.[0-9]+)?\Z", max_length=64)]
"""US dollars for one unit, as a plain decimal: no sign, no exponent."""
Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Moment = Annotated[int, Meta(ge=0, le=LARGEST)]
"""Unix seconds."""
Words = Annotated[str, Meta(min_length=1, max_length=10_000)]
Kebab = Annotated[str, Meta(pattern=r"\A[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=100)]
Share = Annotated[float, Meta(gt=0, le=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
"""OpenAI's bounds."""
Temperature = Annotated[float, Meta(gt=0, le=2)]
Repetition = Annotated[float, Meta(ge=0.01, le=100)]
TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all tables are."""


class Pricing(_Table, frozen=True):
    """US dollars for one token, or for one request."""

    prompt: Price | None = None
    cached_prompt: Price | None = None
    cache_write: Price | None = None
    completion: Price | None = None
    internal_reasoning: Price | None = None
    request: Price | None = None


class Capacity(_Table, frozen=True):
    """What the server is offered for: tokens and requests a minute, and requests at once."""

    prompt_tpm: Count | None = None
    cached_prompt_tpm: Count | None = None
    completion_tpm: Count | None = None
    request_rpm: Count | None = None
    concurrency: Count | None = None


class Datacenter(_Table, frozen=True):
    """A place where the model runs; the country as in ISO 3166-1."""

    country_code: Annotated[str, Meta(pattern=r"\A[A-Z]{2}\Z")]
    region: Words | None = None


class Sampling(_Table, frozen=True):
    """Sampling settings of a request that does not name them."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Fraction | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None


class Reliability(_Table, frozen=True):
    """Within how many seconds the owner promises the first token, the next token and a whole answer."""

    first_token_s: Count | None = None
    token_gap_s: Count | None = None
    answer_s: Count | None = None


class ModelTable(_Table, frozen=True):
    """One model: `[models."NAME"]`."""

    name: Words | None = None
    description: Words | None = None
    owned_by: Words | None = None
    surface: Surface | None = None
    input_modalities: Annotated[tuple[Literal["text"], ...], Meta(min_length=1)] | None = None
    hugging_face_id: Words | None = None
    created: Moment | None = None
    updated: Moment | None = None
    quantization: Quantization | None = None
    licensing: Licence | None = None
    lifecycle: Literal["preview", "stable", "deprecated"] | None = None
    deprecation_date: date | None = None
    is_ready: bool | None = None
    is_free: bool | None = None
    discount_to_user: Annotated[float, Meta(lt=1)] | None = None
    openrouter_slug: Words | None = None
    openmodels_id: Kebab | None = None
    datacenters: tuple[Datacenter, ...] | None = None
    zdr: bool | None = None
    hipaa: bool | None = None
    pricing: Pricing | None = None
    capacity: Capacity | None = None
    reliability: Reliability | None = None
    max_prompt_length: Count | None = None
    max_output_length: Count | None = None
    default_output_length: Count | None = None
    default_reasoning_effort: Effort | None = None
    default_temperature: Temperature | None = None
    default_top_p: Share | None = None
    default_top_k: TopK | None = None
    default_min_p: Fraction | None = None
    default_frequency_penalty: Penalty | None = None
    default_presence_penalty: Penalty | None = None
    default_repetition_penalty: Repetition | None = None
    non_thinking_sampling: Sampling | None = None


class ProviderTable(_Table, frozen=True):
    """Whoever runs the server: `[provider]`; the bounds are the OpenModels registry's."""

    id: Kebab | None = None
    name: Words | None = None
    description: Annotated[str, Meta(min_length=10, max_length=2000)] | None = None
    api_base_url: Annotated[str, Meta(pattern=r"\Ahttps://[A-Za-z0-9.-]+(/[^\s?#]*[^\s?#/])?\Z")] | None = None
    auth_type: Literal["bearer", "api-key", "oauth2", "basic", "none"] | None = None
    regions: Annotated[tuple[Kebab, ...], Meta(min_length=1)] | None = None
    compatibility: Literal["openai", "anthropic", "google", "cohere", "custom"] | None = None
    created: Moment | None = None
    updated: Moment | None = None
