"""`modules.json` of a sentence-transformers directory: how one vector is made of a sequence's rows, in GGUF's key.

Trade: the list of modules behind the transformer, and the settings of the one that pools. Vectors are normalised by
whoever asks for them, so that module says nothing here; one that computes with weights of its own is refused by name.
Refuses to know families. Called by `safetensors_directory`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import shown
from memra.loading.json_files import read_json, read_text

FILE_NAME: Final = "modules.json"
RANK_POOLING: Final = 4
"""GGUF's `pooling_type` of a classifier."""
_POOLING_MODULE: Final = "Pooling"
_SILENT_MODULES: Final = frozenset({"Transformer", "Normalize"})
_MODES: Final[Mapping[str, int]] = {
    "pooling_mode_mean_tokens": 1,
    "pooling_mode_cls_token": 2,
    "pooling_mode_lasttoken": 3,
}
"""To GGUF's `pooling_type`; other keys that begin alike are kinds of pooling that memra does not have."""
_NAMED_MODES: Final[Mapping[object, int]] = {"mean": 1, "cls": 2, "lasttoken": 3}
"""Values of the newer key `pooling_mode`."""


def pooling_metadata(directory: Path, prefix: str) -> dict[str, object]:
    """`<prefix>.pooling_type`; empty where the directory is not one of sentence-transformers, or does not pool.

    Raises:
        CorruptFileError: a file contradicts itself.
        SourceError: the settings of the pooling module are missing.
        UnsupportedModelError: another module, or another kind of pooling.
    """
    found: dict[str, object] = {}
    for kind, path in _modules(directory / FILE_NAME):
        if kind == _POOLING_MODULE:
            found[f"{prefix}.pooling_type"] = _read_mode(directory / path / "config.json")
        elif kind not in _SILENT_MODULES:
            raise UnsupportedModelError(
                f"{directory / FILE_NAME}: memra does not run the module {kind!r} of sentence-transformers: "
                "use a model that ends in Pooling and Normalize"
            )
    return found


def _modules(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind and the folder of every module."""
    if not path.is_file():
        return
    try:
        modules: object = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path}: is not valid JSON ({error}): fetch it again") from None
    for module in modules if isinstance(modules, list) else [None]:
        kind = module.get("type") if isinstance(module, dict) else None
        folder = module.get("path", "") if isinstance(module, dict) else None
        if not isinstance(kind, str) or not isinstance(folder, str) or folder != Path(folder).name:
            raise CorruptFileError(f"{path}: is no list of modules in folders of this directory: fetch it again")
        yield kind.rpartition(".")[2], folder


def _read_mode(path: Path) -> int:
    values = read_json(path)
    named = values.get("pooling_mode")
    modes = [named] if named is not None else []
    modes += [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
    if len(modes) == 1 and isinstance(modes[0], str):
        mode = _NAMED_MODES.get(modes[0]) or _MODES.get(modes[0])
        if mode is not None:
            return mode
    raise UnsupportedModelError(f"{path}: memra pools by mean, cls or lasttoken alone, not by {shown(modes)}")
