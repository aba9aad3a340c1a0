"""One model of the catalogue, `GET /v1/models`: what was found in it and what its owner declares, side by side.

Trade: the row's keys and their order; equal models give equal bytes. What was not found yet is null, what is not
declared is left out, but for prices in OpenRouter's words, where clients that add up expect zeros. Refuses to know
where the values come from. Called by `memra.http.routes.models`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from memra.messages.models import ModelTraits
from memra.types import ModelName, ModelTask

CONTRACT_VERSION = "2.0"
"""Of the row; the part before the point changes when a key goes or changes its meaning."""

_PER_MILLION = {
    "input": "prompt",
    "cached_input": "cached_prompt",
    "cache_write": "cache_write",
    "output": "completion",
    "reasoning": "internal_reasoning",
}
_DECLARED = ("lifecycle", "deprecation_date", "reliability")


@dataclass(frozen=True, slots=True)
class _Deed:
    type: str | None
    endpoints: tuple[str, ...] | None
    modality: str | None


_DEEDS: Mapping[ModelTask | None, _Deed] = {
    ModelTask.GENERATE: _Deed(
        "chat", ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"), "text->text"
    ),
    ModelTask.EMBED: _Deed("embedding", ("/v1/embeddings",), "text->embeddings"),
    ModelTask.RANK: _Deed("rerank", ("/v1/rerank",), "text->rerank"),
    None: _Deed(None, None, None),
}
"""What a row says of a model's trade; the modalities in OpenRouter's words."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """What is known of one model.

    Attributes:
        created: unix seconds, of the server's start.
        declared: plain values by the names of the metadata file.
        provider: the same of whoever runs the server.
    """

    name: ModelName
    created: int
    task: ModelTask | None
    context_tokens: int | None
    embedding_width: int | None
    traits: ModelTraits
    declared: Mapping[str, Any]
    provider: Mapping[str, Any]


def write_row(model: ListedModel) -> Mapping[str, Any]:
    """Return the row as plain values."""
    does, declared = _DEEDS[model.task], model.declared
    pricing = declared.get("pricing", {})
    row: dict[str, Any] = {
        "id": model.name,
        "name": declared.get("name", model.name),
        "object": "model",
        "created": declared.get("created", model.created),
        "owned_by": declared.get("owned_by", "memra"),
        "contract_version": CONTRACT_VERSION,
        "type": does.type,
        "endpoints": does.endpoints,
        "capabilities": _capabilities(model),
        "context_length": model.context_tokens,
        "embedding_length": model.embedding_width,
        "architecture": {
            "modality": does.modality,
            "tokenizer": model.traits.tokenizer,
            "instruct_type": _instruct_type(model.traits),
        },
        "pricing": {key: pricing.get(key, "0") for key in ("prompt", "completion", "request")} | {"image": "0"},
        "top_provider": {
            "context_length": model.context_tokens,
            "max_completion_tokens": declared.get("max_output_length"),
        },
    }
    return row | _further(model, pricing)


def _further(model: ListedModel, pricing: Mapping[str, str]) -> dict[str, Any]:
    """Return what stands in a row only where it is declared."""
    per_million = {name: per_million_tokens(pricing[key]) for name, key in _PER_MILLION.items() if key in pricing}
    further = {key: model.declared[key] for key in ("description", *_DECLARED) if key in model.declared}
    if per_million:
        further["pricing_per_million_tokens"] = {"currency": "USD", **per_million}
    if model.provider:
        further["provider"] = model.provider
    return further


def per_million_tokens(price: str) -> str:
    """Return the price of a million, of the price of one: exact, in plain digits."""
    text = f"{Decimal(price).scaleb(6):f}"
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


def _capabilities(model: ListedModel) -> Mapping[str, bool] | None:
    if model.task is None:
        return None
    is_chat = model.task is ModelTask.GENERATE
    return {
        "streaming": is_chat,
        "tools": model.traits.has_tools,
        "structured_output": is_chat,
        "reasoning": model.traits.can_reason,
        "prompt_caching": model.traits.caches_prompts,
    }


def _instruct_type(traits: ModelTraits) -> str | None:
    """Name the form of a chat's turns in OpenRouter's words, where it is one of the two that are told apart."""
    if traits.speaks_chatml:
        return "chatml"
    return "gemma" if (traits.architecture or "").startswith("gemma") else None
