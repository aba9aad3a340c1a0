"""The feed `openmodels`: the models as OpenModels lists them, live as JSON or as the YAML files of its registry.

Trade: names the two forms. The first is a row a model, in `listing`, and the second what a pull request to the registry
holds, in `registry`; each demands declarations, and says which are missing. Built in; block it with
`[plugins] blocked`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.plugins.feeds import Feed, ModelCard
from memra.plugins.feeds_openmodels.listing import list_models
from memra.plugins.feeds_openmodels.registry import write_files
from memra.plugins.markers import hookimpl


class OpenModelsFeed:
    """See the module."""

    schema = "openmodels"

    def render(self, cards: Sequence[ModelCard]) -> Mapping[str, Any]:
        """Return one row a model.

        Raises:
            FeedUnavailableError: something that a row has to hold is not declared.
        """
        return list_models(cards)

    def files(self, cards: Sequence[ModelCard]) -> Mapping[str, str]:
        """Return the registry's files, by their paths in it.

        Raises:
            FeedUnavailableError: something that a file has to hold is not declared.
        """
        return write_files(cards)


@hookimpl
def memra_feeds() -> Sequence[Feed]:
    """Add the feed."""
    return [OpenModelsFeed()]
