"""Which models are served: `GET /models`, `GET /v1/models`."""

from collections.abc import Mapping
from typing import Any

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.errors import InvalidRequestError
from memra.http.generation import FrontDoor
from memra.types import ModelName

SCHEMAS = ("openai",)
"""What `?schema=` may name."""


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
        return _listing([_row(name, door.created, door.house.context_tokens(name)) for name in door.house.models])


def _listing(rows: list[Mapping[str, Any]]) -> Response:
    return Response(msgspec.json.encode({"object": "list", "data": rows}), content_type="application/json")


def _row(name: ModelName, created: int, context_tokens: int | None) -> Mapping[str, Any]:
    return {
        "id": name,
        "name": name,
        "object": "model",
        "created": created,
        "context_length": context_tokens,
        "architecture": {"modality": "text->text", "tokenizer": None, "instruct_type": None},
        "pricing": {"prompt": "0", "completion": "0", "request": "0", "image": "0"},
        "top_provider": {"context_length": context_tokens, "max_completion_tokens": None},
    }
