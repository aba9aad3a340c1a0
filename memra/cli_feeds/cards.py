"""The models' cards and the plugin that writes them down, found without a server.

Trade: what `memra.app` does up to the point where models are opened. Refuses to know what a feed says.
"""

from collections.abc import Sequence
from contextlib import closing
from time import time

from memra.actors.catalogue import CatalogueEntry
from memra.actors.model_listing import make_card
from memra.engine.executor_choice import choose_executor
from memra.errors import UsageError
from memra.messages.models import ModelTerms
from memra.metadata.source import MetadataSource
from memra.plugins.feeds import Feed, ModelCard
from memra.plugins.manager import Plugins
from memra.served_models import ServedModels
from memra.settings import PluginSettings, Settings
from memra.types import ModelName


def find_feed(schema: str, settings: PluginSettings) -> tuple[Feed, Plugins]:
    """Return a feed, and all plugins.

    Raises:
        UsageError: no plugin brings it, or something is wrong with the plugins.
    """
    plugins = Plugins(timeout_s=settings.timeout_s)
    plugins.load(blocked=settings.blocked, tables=settings.table)
    if schema not in plugins.feed_schemas:
        raise UsageError(f"there is no feed {schema!r}; known are {', '.join(plugins.feed_schemas) or 'none'}")
    return plugins.feed(schema), plugins


def read_cards(settings: Settings, plugins: Plugins) -> Sequence[ModelCard]:
    """Open every configured model, one after the other, and return the cards.

    Raises:
        StartupError: a model cannot be opened, or something is wrong with the metadata.
    """
    models = ServedModels(settings, choose_executor(settings.engine), plugins)
    metadata = MetadataSource(settings.metadata.file, tuple(models.terms))
    created = int(time())
    return [_card(name, models, terms, metadata, created=created) for name, terms in models.terms.items()]


def _card(
    name: ModelName, models: ServedModels, terms: ModelTerms, metadata: MetadataSource, *, created: int
) -> ModelCard:
    current = metadata.current
    with closing(models.open(name, None, terms)) as model:
        entry = CatalogueEntry(
            terms,
            context_tokens=model.context_tokens,
            task=model.task,
            embedding_width=model.embedding_width,
            traits=model.traits,
        )
    metadata.warn_of_contradictions(name, entry.traits)
    return make_card(
        name,
        entry,
        declared=current.declared.get(name, {}),
        rules=current.rules_of(name),
        provider=current.provider,
        created=created,
    )
