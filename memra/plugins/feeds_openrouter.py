"""The feed `openrouter`: every model as a document of OpenRouter's provider schema, version 2.4.

Trade: what was found and what is declared, in that schema's words. What is not declared is left out, never zero or
empty; where both know a quantization, what was found is written, and text is all that goes in. Source: OpenRouter's
provider monitor schema 2.4 and its guide for providers. Built in; block it with `[plugins] blocked`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memra.plugins.feeds import Feed, ModelCard
from memra.plugins.markers import hookimpl
from memra.types import ModelTask

SCHEMA_VERSION = "2.4"
_LARGEST_SEED = 2**53 - 1
"""The largest that every reader of JSON keeps exactly."""

_UNDESCRIBED = (
    "temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop",
)  # fmt: skip
_OUTPUTS = {ModelTask.GENERATE: "text", ModelTask.EMBED: "embeddings", ModelTask.RANK: "rerank"}
_SURFACES = {"chat": "text", "embedding": "embeddings", "rerank": "rerank", "transcription": "transcription"}
_INPUT_PRICES = ("prompt", "cached_prompt", "cache_write")
_OUTPUT_PRICES = ("completion", "internal_reasoning")
_COPIED = ("hugging_face_id", "description", "deprecation_date", "is_ready", "is_free", "discount_to_user")
_Values = dict[str, Any]


class OpenRouterFeed:
    """See the module."""

    schema = "openrouter"

    def render(self, cards: Sequence[ModelCard]) -> Mapping[str, Any]:
        """Return one document a model; no model lacks what the schema demands."""
        return {"data": [_document(card) for card in cards]}


@hookimpl
def memra_feeds() -> Sequence[Feed]:
    """Add the feed."""
    return [OpenRouterFeed()]


def _document(card: ModelCard) -> Mapping[str, Any]:
    declared = card.declared
    document: _Values = {
        "schema_version": SCHEMA_VERSION,
        "id": card.name,
        "name": declared.get("name", card.name),
        "created": declared.get("created", card.created),
    }
    document |= {key: declared[key] for key in _COPIED if key in declared}
    document |= _given(quantization=card.quantization or declared.get("quantization"), tokenizer=card.tokenizer)
    document["input_modalities"] = [_input(card)]
    document["output_modalities"] = [_output(card)]
    document |= _given(
        pricing=[_price(card, "request", unit="request")] if "request" in _prices(card) else None,
        capacity=list(_capacities(card, ("request", "request_rpm"), unit="request")),
        openrouter={"slug": declared["openrouter_slug"]} if "openrouter_slug" in declared else None,
        datacenters=declared.get("datacenters"),
        compliance={key: declared[key] for key in ("zdr", "hipaa") if key in declared},
    )
    return document


def _input(card: ModelCard) -> Mapping[str, Any]:
    """Text goes in, whatever comes out."""
    limits = _given(
        max_context_length=_tokens(card.context_tokens),
        max_prompt_length=_tokens(card.declared.get("max_prompt_length")),
    )
    capacities = _capacities(card, ("prompt", "prompt_tpm"), ("cached_prompt", "cached_prompt_tpm"), unit="token")
    return {
        "type": "text",
        **_given(supported_inputs=limits, pricing=_token_prices(card, _INPUT_PRICES), capacity=list(capacities)),
    }


def _output(card: ModelCard) -> Mapping[str, Any]:
    kind = _OUTPUTS[card.task] if card.task is not None else _SURFACES[card.declared.get("surface", "chat")]
    output: _Values = {"type": kind, "supported_parameters": {}}
    if kind == "text":
        output |= {"supported_parameters": _parameters(card), "streaming": True}
        output |= _given(max_length=_tokens(card.declared.get("max_output_length")))
        output |= _given(pricing=_token_prices(card, _OUTPUT_PRICES))
    capacities = list(_capacities(card, ("completion", "completion_tpm"), unit="token")) if kind == "text" else []
    concurrency = card.declared.get("capacity", {}).get("concurrency")
    if concurrency is not None:
        capacities.append({"type": "concurrency", "unit": "request", "value": concurrency})
    return output | _given(capacity=capacities)


def _parameters(card: ModelCard) -> Mapping[str, Any]:
    """Describe what a request may set, as far as the schema's descriptors can say it."""
    parameters: dict[str, _Values] = {name: {"type": "unknown"} for name in _UNDESCRIBED}
    parameters["top_k"] = {"type": "integer", "min": 0}
    parameters["seed"] = {"type": "integer", "min": 0, "max": _LARGEST_SEED}
    parameters["max_tokens"] = {"type": "integer", "min": 1, "unit": "token"}
    if "max_output_length" in card.declared:
        parameters["max_tokens"]["max"] = card.declared["max_output_length"]
    parameters |= {name: {"type": "boolean"} for name in ("json_mode", "structured_outputs")}
    if card.has_tools:
        parameters["tools"] = {"type": "boolean"}
        parameters["tool_choice"] = {"type": "enum", "values": ["auto", "none", "required"]}
    if card.can_reason:
        parameters["reasoning"] = {"type": "boolean"}
    return parameters


def _prices(card: ModelCard) -> Mapping[str, str]:
    prices: Mapping[str, str] = card.declared.get("pricing", {})
    return prices


def _token_prices(card: ModelCard, kinds: Sequence[str]) -> list[Mapping[str, Any]]:
    return [_price(card, kind, unit="token") for kind in kinds if kind in _prices(card)]


def _price(card: ModelCard, kind: str, *, unit: str) -> Mapping[str, Any]:
    price: _Values = {"type": kind, "unit": unit, "cost_usd": _prices(card)[kind]}
    if kind == "cached_prompt":
        price["implicit"] = True  # nobody has to ask for the cache
    return price


def _capacities(card: ModelCard, *kinds: tuple[str, str], unit: str) -> Iterator[Mapping[str, Any]]:
    offered = card.declared.get("capacity", {})
    for kind, key in kinds:
        if key in offered:
            yield {"type": kind, "unit": unit, "per": "minute", "value": offered[key]}


def _tokens(value: int | None) -> Mapping[str, Any] | None:
    return None if value is None else {"value": value, "unit": "token"}


def _given(**values: Any) -> _Values:
    """Return what is there: nothing that is None or empty."""
    return {name: value for name, value in values.items() if value not in (None, [], {}, ())}
