"""Where the running server has its model metadata from: read at start, and again whenever somebody asks.

What is current is replaced as a whole, so a reader in any thread sees one file's state. Refuses to know what it is used
for. Made by the composition root.
"""

import logging
from collections.abc import Collection
from pathlib import Path

from memra.errors import ConfigurationError
from memra.messages.models import ModelTraits
from memra.metadata.reading import Metadata, read_metadata
from memra.types import ModelName

log = logging.getLogger(__name__)


class MetadataSource:
    """One file, or none.

    Attributes:
        current: what holds now.
    """

    def __init__(self, path: Path | None, names: Collection[ModelName]) -> None:
        """Read the file for the first time.

        Args:
            path: None where nothing is declared.
            names: that are served.

        Raises:
            ConfigurationError: names everything that is wrong with the file.
        """
        self._path = path
        self.current = Metadata() if path is None else read_metadata(path, names)

    def warn_of_contradictions(self, name: ModelName, traits: ModelTraits) -> None:
        """Say in the log where what is declared of a model is not what was found in it; what was found is published."""
        declared = self.current.declared.get(name, {}).get("quantization")
        if declared is not None and traits.quantization not in (None, declared):
            log.warning(
                "%s: the model metadata says %s, but most weights are %s, which is published",
                name, declared, traits.quantization,
            )  # fmt: skip

    def reload(self, names: Collection[ModelName]) -> int:
        """Read the file again, and say how many models have metadata now; blocks.

        Args:
            names: that are served by now.

        Raises:
            ConfigurationError: there is no file, or something is wrong with it; what held before still holds.
        """
        if self._path is None:
            raise ConfigurationError("this server has no file of model metadata; name one with MEMRA_MODEL_METADATA")
        self.current = read_metadata(self._path, names)
        return len(self.current.declared)
