"""A path on this machine, opened as whatever kind of model it holds.

Called by whoever loads a model. Knows which reader opens what; refuses to know what is inside.
"""

from collections.abc import Sequence
from pathlib import Path

from memra.errors import ConfigurationError
from memra.loading.checkpoint import Checkpoint
from memra.loading.gguf_file import open_gguf
from memra.loading.metadata_overrides import MetadataOverride
from memra.loading.safetensors_directory import open_directory


def open_checkpoint(path: Path, *, overrides: Sequence[MetadataOverride] = ()) -> Checkpoint:
    """Open a GGUF file or a model directory.

    Args:
        path: the file or directory.
        overrides: of a GGUF file's keys.

    Raises:
        ConfigurationError: an override does not fit the file, or what it is for is no GGUF file.
        SourceError: there is nothing of that kind at `path`.
        CorruptFileError: a file contradicts itself or ends early.
        UnsupportedModelError: the model is sound, but not one that memra reads.
    """
    if not path.is_dir():
        return open_gguf(path, overrides=overrides)
    if overrides:
        raise ConfigurationError(
            f"{path}: is a directory, and meta.{overrides[0].key} overrides a key of a GGUF file: name the file, or "
            "edit the directory's config.json"
        )
    return open_directory(path)
