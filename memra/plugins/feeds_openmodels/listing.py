"""The live listing: one row a model, with prices for one token.

A listing in which a model lacks something that its row has to hold is refused as a whole, with all that is missing: a
reader could not tell a gap from a zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.plugins.feeds import ModelCard
from memra.plugins.feeds_openmodels.demands import Demands
from memra.types import ModelTask

_OUTPUTS = {ModelTask.EMBED: "embeddings", ModelTask.RANK: "rerank"}


def list_models(cards: Sequence[ModelCard]) -> Mapping[str, Any]:
    """Return the listing.

    Raises:
        FeedUnavailableError: says what is not declared.
    """
    demands = Demands()
    rows = [_row(card, demands) for card in cards]
    demands.raise_all()
    return {"data": rows}


def _row(card: ModelCard, demands: Demands) -> Mapping[str, Any]:
    declared, place = card.declared, f"model {card.name!r}"
    if card.context_tokens is None:
        demands.complain(f"{place} was never loaded, so its context is not known yet")
    writes = card.task not in _OUTPUTS
    return {
        "id": card.name,
        "name": declared.get("name", card.name),
        "created": declared.get("created", card.created),
        "input_modalities": ["text"],
        "output_modalities": ["text" if card.task is None else _OUTPUTS.get(card.task, "text")],
        "context_length": card.context_tokens,
        **({"max_output_length": demands.take(place, declared, "max_output_length")} if writes else {}),
        "currency": "USD",
        "pricing": _pricing(card, demands, place=place, writes=writes),
        "supported_features": _features(card),
        "is_ready": declared.get("is_ready", True),
        "is_free": declared.get("is_free", False),
        "discount_to_user": declared.get("discount_to_user", 0),
    }


def _pricing(card: ModelCard, demands: Demands, *, place: str, writes: bool) -> Mapping[str, Any]:
    prices = {"prompt": demands.take(place, card.declared, "pricing.prompt")}
    if writes:
        prices["completion"] = demands.take(place, card.declared, "pricing.completion")
        prices["input_cache_read"] = demands.take(place, card.declared, "pricing.cached_prompt")
    request = card.declared.get("pricing", {}).get("request")
    return prices if request is None else {**prices, "request": request}


def _features(card: ModelCard) -> list[str]:
    return [feature for feature, has in (("tool_calling", card.has_tools), ("reasoning", card.can_reason)) if has]
