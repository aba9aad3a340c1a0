"""Which models are served: `GET /models`, `GET /v1/models`, and one of them: `GET /v1/models/{id}`.

An id may hold slashes, raw or percent-encoded. An unknown one is 404 here, where it was asked about, while a request
that asks for such a model is 400.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.errors import InvalidRequestError, UnlistedModelError
from memra.http.generation import FrontDoor
from memra.types import ModelName, ModelTask

SCHEMAS = ("openai",)
"""What `?schema=` may name."""


@dataclass(frozen=True, slots=True)
class _Deed:
    type: str | None
    endpoints: tuple[str, ...] | None
    modality: str | None


_DEEDS: Mapping[ModelTask | None, _Deed] = {
    ModelTask.GENERATE: _Deed("chat", ("/v1/chat/completions", "/v1/completions"), "text->text"),
    ModelTask.EMBED: _Deed("embedding", ("/v1/embeddings",), "text->embeddings"),
    ModelTask.RANK: _Deed("rerank", ("/v1/rerank",), "text->rerank"),
    None: _Deed(None, None, None),
}
"""What a row says of a model's trade; the modalities in OpenRouter's words."""


def add_model_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the listings; equal models give equal bytes. A model that was never loaded has no context length yet."""

    @app.get("/models")
    async def models() -> Response:
        schema = request.args.get("schema", SCHEMAS[0])
        if schema not in SCHEMAS:
            raise InvalidRequestError(f"`schema` must be one of: {', '.join(SCHEMAS)}.", param="schema")
        return _listing([{"id": name, "object": "model"} for name in door.house.models])

    @app.get("/v1/models")
    async def catalog() -> Response:
        return _listing([_row(door, name) for name in door.house.models])

    @app.get("/v1/models/<path:model_id>")
    async def model(model_id: str) -> Response:
        name = ModelName(model_id)
        if name not in door.house.models:
            raise UnlistedModelError(f"No model {model_id!r} is served here; GET /v1/models lists them.", param="id")
        return Response(msgspec.json.encode(_row(door, name)), content_type="application/json")


def _listing(rows: list[Mapping[str, Any]]) -> Response:
    return Response(msgspec.json.encode({"object": "list", "data": rows}), content_type="application/json")


def _row(door: FrontDoor, name: ModelName) -> Mapping[str, Any]:
    """One model; what it does, and how long a text may be, is null until it was opened once."""
    house = door.house
    context_tokens = house.context_tokens(name)
    does = _DEEDS[house.task(name)]
    return {
        "id": name,
        "name": name,
        "object": "model",
        "created": door.created,
        "owned_by": "memra",
        "type": does.type,
        "endpoints": does.endpoints,
        "context_length": context_tokens,
        "embedding_length": house.embedding_width(name),
        "architecture": {"modality": does.modality, "tokenizer": None, "instruct_type": None},
        "pricing": {"prompt": "0", "completion": "0", "request": "0", "image": "0"},
        "top_provider": {"context_length": context_tokens, "max_completion_tokens": None},
    }
