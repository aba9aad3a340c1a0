"""A path on this machine, opened as whatever kind of model it holds.

Called by whoever loads a model. Knows which reader opens what; refuses to know what is inside.
"""

from pathlib import Path

from memra.loading.checkpoint import Checkpoint
from memra.loading.gguf_file import open_gguf
from memra.loading.safetensors_directory import open_directory


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a model directory.

    Raises:
        SourceError: there is nothing of that kind at `path`.
        CorruptFileError: a file contradicts itself or ends early.
        UnsupportedModelError: the model is sound, but not one that memra reads.
    """
    return open_directory(path) if path.is_dir() else open_gguf(path)
