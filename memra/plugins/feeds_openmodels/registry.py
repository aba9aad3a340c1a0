"""The registry's files: one of the provider, and two of every model, as its JSON schemas demand them.

Trade: YAML whose bytes depend on nothing but the cards, prices for a million tokens as exact numbers. Refuses to guess:
what a file has to hold and nobody declared is named. The registry has no word for models that rank, so those are left
out. Source: the schemas and the documentation of OpenModels (openmodels.run); where they differ, the schemas, which its
checks run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from memra.plugins.feeds import ModelCard
from memra.plugins.feeds_openmodels.demands import Demands
from memra.types import ModelTask

_LARGEST_CONTEXT = 10_000_000
_DESCRIPTION_CHARS = (10, 2000)
_PRICES = {
    "input_per_million": "prompt",
    "output_per_million": "completion",
    "cache_write_per_million": "cache_write",
    "cache_read_per_million": "cached_prompt",
    "reasoning_tokens_per_million": "internal_reasoning",
}
_MUST = ("input_per_million", "output_per_million")


class _Number(str):
    """A number in plain digits, which floats would spoil."""

    __slots__ = ()


_PROVIDER = "[provider]"


def write_files(cards: Sequence[ModelCard]) -> Mapping[str, str]:
    """Return the files by path.

    Raises:
        FeedUnavailableError: says what is not declared, or does not fit the registry.
    """
    demands = Demands()
    listed = [card for card in cards if card.task is not ModelTask.RANK]
    if not listed:
        demands.complain("no model is served that the registry could list")
        demands.raise_all()
    provider = listed[0].provider
    provider_id = demands.take(_PROVIDER, provider, "id")
    files = {f"providers/{provider_id}.yaml": _provider(provider, demands)}
    for card in listed:
        model_id = card.declared.get("openmodels_id") or _kebab(card.name)
        if f"models/{model_id}.yaml" in files:
            demands.complain(f"model {card.name!r}: another one has the id {model_id!r} too; declare openmodels_id")
        files[f"models/{model_id}.yaml"] = _model(card, model_id, demands)
        files[f"mappings/{provider_id}/{model_id}.yaml"] = _mapping(card, model_id, demands)
    demands.raise_all()
    return {path: "".join(f"{line}\n" for line in _yaml(values, "")) for path, values in files.items()}


def _provider(provider: Mapping[str, Any], demands: Demands) -> Mapping[str, Any]:
    keys = ("id", "name", "description", "api_base_url", "auth_type", "regions", "compatibility")
    values = {key: demands.take(_PROVIDER, provider, key) for key in keys}
    return {**values, **_moments(provider, _PROVIDER, demands)}


def _model(card: ModelCard, model_id: str, demands: Demands) -> Mapping[str, Any]:
    place = f"model {card.name!r}"
    description = demands.take(place, card.declared, "description")
    least, most = _DESCRIPTION_CHARS
    if description is not None and not least <= len(description) <= most:
        demands.complain(f"{place}: its description must have {least} to {most} characters")
    if card.context_tokens is None or card.context_tokens > _LARGEST_CONTEXT:
        demands.complain(f"{place}: its context is not known, or larger than {_LARGEST_CONTEXT}")
    return {
        "id": model_id,
        "name": card.declared.get("name", card.name),
        "description": description,
        "capabilities": _capabilities(card),
        "modalities": ["text"],
        "context_window": card.context_tokens,
        "licensing": demands.take(place, card.declared, "licensing"),
        **_moments(card.declared, place, demands),
    }


def _mapping(card: ModelCard, model_id: str, demands: Demands) -> Mapping[str, Any]:
    place, declared = f"model {card.name!r}", card.declared
    request_rpm, prompt_tpm, completion_tpm = (
        demands.take(place, declared, f"capacity.{key}") for key in ("request_rpm", "prompt_tpm", "completion_tpm")
    )
    return {
        "model_id": model_id,
        "provider_id": card.provider.get("id"),
        "provider_model_name": card.name,
        "pricing": {**_pricing(declared, place, demands), "currency": "USD"},
        "rate_limits": {
            "requests_per_minute": request_rpm,
            "tokens_per_minute": (prompt_tpm or 0) + (completion_tpm or 0),
        },
        "available_regions": card.provider.get("regions"),
        **_moments(declared, place, demands),
    }


def _pricing(declared: Mapping[str, Any], place: str, demands: Demands) -> Mapping[str, _Number]:
    prices = declared.get("pricing", {})
    for name in _MUST:
        demands.take(place, declared, f"pricing.{_PRICES[name]}")
    return {name: _per_million(prices[key]) for name, key in _PRICES.items() if key in prices}


def _per_million(price: str) -> _Number:
    text = f"{Decimal(price).scaleb(6):f}"
    return _Number((text.rstrip("0").rstrip(".") or "0") if "." in text else text)


def _capabilities(card: ModelCard) -> list[str]:
    if card.task is ModelTask.EMBED:
        return ["embeddings"]
    further = (("function-calling", card.has_tools), ("reasoning", card.can_reason))
    return ["chat", "completion", *(name for name, has in further if has)]


def _moments(declared: Mapping[str, Any], place: str, demands: Demands) -> Mapping[str, Any]:
    created = demands.take(place, declared, "created")
    return {"created_at": _moment(created), "updated_at": _moment(declared.get("updated", created))}


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _kebab(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def _yaml(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Write a mapping in block style; scalars as JSON, which YAML 1.2 takes as it is."""
    for key, value in values.items():
        match value:
            case Mapping():
                yield f"{indent}{key}:"
                yield from _yaml(value, f"{indent}  ")
            case list() | tuple():
                yield f"{indent}{key}:"
                yield from (f"{indent}  - {json.dumps(item, ensure_ascii=False)}" for item in value)
            case _Number():
                yield f"{indent}{key}: {value}"
            case _:
                yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
