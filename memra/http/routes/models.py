"""Which models are served: `GET /models`, `GET /v1/models`, and one of them: `GET /v1/models/{id}`.

An id may hold slashes, raw or percent-encoded. An unknown one is 404 here, where it was asked about, while a request
that asks for such a model is 400.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.errors import InvalidRequestError, UnlistedModelError
from memra.http.generation import FrontDoor
from memra.http.wire.model_row import ListedModel, write_row
from memra.types import ModelName

SCHEMAS = ("openai",)
"""What `?schema=` may name beside the feeds of plugins."""


def add_model_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the listings; equal models give equal bytes. A model that was never loaded has no context length yet."""

    @app.get("/models")
    async def models() -> Response:
        listing, schema = door.house.listing, request.args.get("schema", SCHEMAS[0])
        if schema in SCHEMAS:
            return _listing([{"id": name, "object": "model"} for name in door.house.models])
        if schema in listing.feed_schemas:
            return _json(await listing.render_feed(schema))
        known = ", ".join((*SCHEMAS, *listing.feed_schemas))
        raise InvalidRequestError(f"`schema` must be one of: {known}.", param="schema")

    @app.get("/v1/models")
    async def catalog() -> Response:
        return _listing([_row(door, name) for name in door.house.models])

    @app.get("/v1/models/<path:model_id>")
    async def model(model_id: str) -> Response:
        name = ModelName(model_id)
        if name not in door.house.models:
            raise UnlistedModelError(f"No model {model_id!r} is served here; GET /v1/models lists them.", param="id")
        return _json(_row(door, name))


def _listing(rows: list[Mapping[str, Any]]) -> Response:
    return _json({"object": "list", "data": rows})


def _json(values: Mapping[str, Any]) -> Response:
    return Response(msgspec.json.encode(values), content_type="application/json")


def _row(door: FrontDoor, name: ModelName) -> Mapping[str, Any]:
    house = door.house
    return write_row(
        ListedModel(
            name,
            created=door.created,
            task=house.task(name),
            context_tokens=house.context_tokens(name),
            embedding_width=house.embedding_width(name),
            traits=house.listing.traits(name),
            declared=house.listing.declared(name),
            provider=house.listing.provider,
        )
    )
