"""What the outside is told of the models: what was found in them, and what their owner declares.

Trade: the catalogue and the metadata file side by side, for the door's own listings and for feeds that plugins write.
Refuses to know how either is shown. Trio thread only; reading the file again takes a worker thread. Made by the
composition root.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.errors import InvalidRequestError
from memra.messages.model_rules import ModelRules
from memra.messages.models import UNKNOWN_TRAITS, ModelTraits
from memra.metadata.source import MetadataSource
from memra.plugins.feeds import FeedUnavailableError, ModelCard
from memra.plugins.handles import Report
from memra.types import ModelName

RenderFeed = Callable[[str, Sequence[ModelCard]], Awaitable[Mapping[str, Any]]]


async def _render_nothing(schema: str, _cards: Sequence[ModelCard]) -> Mapping[str, Any]:
    raise KeyError(schema)


class ModelListing:
    """Implements `memra.actors.contract.Listing`.

    Attributes:
        feed_schemas: what plugins can write.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        metadata: MetadataSource,
        *,
        created: int,
        feed_schemas: tuple[str, ...] = (),
        render: RenderFeed = _render_nothing,
    ) -> None:
        """Take what is told.

        Args:
            catalogue: what was found.
            metadata: what is declared.
            created: unix seconds of the server's start.
            feed_schemas: what `render` knows.
            render: has a plugin write a feed.
        """
        self.feed_schemas = feed_schemas
        self._catalogue = catalogue
        self._metadata = metadata
        self._created = created
        self._render = render

    @property
    def provider(self) -> Mapping[str, Any]:
        """What is declared of whoever runs the server."""
        return self._metadata.current.provider

    def declared(self, model: ModelName) -> Mapping[str, Any]:
        """What is declared of a model, as plain values by the names of the metadata file."""
        return self._metadata.current.declared.get(model, {})

    def rules(self, model: ModelName) -> ModelRules:
        """What is laid down for a model's requests."""
        return self._metadata.current.rules_of(model)

    def traits(self, model: ModelName) -> ModelTraits:
        """What was found in a model."""
        entry = self._catalogue.find(model)
        return UNKNOWN_TRAITS if entry is None else entry.traits

    def cards(self) -> tuple[ModelCard, ...]:
        """Return what feeds are told of all models, in configured order."""
        return tuple(
            make_card(
                name, entry, declared=self.declared(name), rules=self.rules(name), provider=self.provider,
                created=self._created,
            )
            for name in tuple(self._catalogue.names)
            if (entry := self._catalogue.find(name)) is not None
        )  # fmt: skip

    async def render_feed(self, schema: str) -> Mapping[str, Any]:
        """Have all models written down for one of `feed_schemas`, as plain values.

        Raises:
            InvalidRequestError: the schema demands something that is not declared.
            PluginFaultError: the plugin failed.
        """
        try:
            return await self._render(schema, self.cards())
        except FeedUnavailableError as error:
            raise InvalidRequestError(f"There is no {schema} feed: {error}", param="schema") from error

    async def reload(self) -> Report:
        """Read the metadata file again; the report says of how many models something is declared.

        Raises:
            ConfigurationError: there is no file, or it is broken; nothing has changed.
        """
        read = partial(self._metadata.reload, tuple(self._catalogue.names))
        return {"models": await trio.to_thread.run_sync(read)}


def make_card(  # noqa: PLR0913  (each says another thing of a model)
    name: ModelName,
    entry: CatalogueEntry,
    *,
    declared: Mapping[str, Any],
    rules: ModelRules,
    provider: Mapping[str, Any],
    created: int,
) -> ModelCard:
    """Return what feeds are told of a model."""
    traits = entry.traits
    return ModelCard(
        name=name,
        task=entry.task,
        context_tokens=rules.context_tokens(entry.context_tokens),
        embedding_width=entry.embedding_width,
        has_tools=traits.has_tools,
        can_reason=traits.can_reason,
        quantization=traits.quantization,
        tokenizer=traits.tokenizer,
        architecture=traits.architecture,
        created=created,
        declared=declared,
        provider=provider,
    )
