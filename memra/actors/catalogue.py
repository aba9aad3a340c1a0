"""The names that are served, and what is known of each: one live table, so that nobody has to be told of a change.

The keeper writes it; admission, lifecycle and the bridge read it. Trio thread only. Knows nothing of memory.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from memra.messages.models import UNKNOWN_TRAITS, ModelTerms, ModelTraits
from memra.types import ModelName, ModelTask


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model that clients can ask for.

    Attributes:
        terms: on which it lies in memory.
        source: as a user wrote it at run time; None where it is the configured one.
        context_tokens: None until the model was opened once.
        has_failed: its last load went wrong.
        task: what it does with text; None until it was opened once.
        embedding_width: values of one of its vectors; None for a model that makes none, and until it was opened once.
        traits: what else was found in it.
    """

    terms: ModelTerms
    source: str | None = None
    context_tokens: int | None = None
    has_failed: bool = False
    task: ModelTask | None = None
    embedding_width: int | None = None
    traits: ModelTraits = UNKNOWN_TRAITS


class Catalogue:
    """The table, in configured order; models that were added at run time come last."""

    def __init__(self, entries: Mapping[ModelName, CatalogueEntry]) -> None:
        """Begin with what is configured."""
        self._entries = dict(entries)

    @property
    def names(self) -> Collection[ModelName]:
        """A live view of the names."""
        return self._entries.keys()

    def find(self, name: ModelName) -> CatalogueEntry | None:
        """What is known of a name; None when it is not served."""
        return self._entries.get(name)

    def write(self, name: ModelName, entry: CatalogueEntry) -> None:
        """Add a name, or put another entry in its place."""
        self._entries[name] = entry
