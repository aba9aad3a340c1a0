"""`modules.json` of a sentence-transformers directory: how one vector is made of a sequence's rows, in GGUF's key.

Trade: the list of modules behind the transformer, and the settings of the one that pools. Vectors are normalised by
whoever asks for them, so that module says nothing here; matrices behind the pooling are found for the families that
have them, and any other module is refused by name. Refuses to know families. Called by `safetensors_directory`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import shown
from memra.loading.json_files import read_json, read_text
from memra.loading.safetensors_file import SafetensorsFile, map_safetensors

FILE_NAME: Final = "modules.json"
RANK_POOLING: Final = 4
"""GGUF's `pooling_type` of a classifier."""
BEHIND_POOLING: Final = ("dense_2.weight", "dense_3.weight")
"""Matrices behind the pooling, in the order of use: GGUF has places for two."""
DENSE_TENSOR: Final = "linear.weight"
"""The one tensor of a file of `dense_weights`."""
_POOLING_MODULE: Final = "Pooling"
_DENSE_MODULE: Final = "Dense"
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_SILENT_MODULES: Final = frozenset({"Transformer", "Normalize"})
_MODES: Final[Mapping[str, int]] = {
    "pooling_mode_mean_tokens": 1,
    "pooling_mode_cls_token": 2,
    "pooling_mode_lasttoken": 3,
}
"""To GGUF's `pooling_type`; other keys that begin alike are kinds of pooling that memra does not have."""
_NAMED_MODES: Final[Mapping[object, int]] = {"mean": 1, "cls": 2, "lasttoken": 3}
"""Values of the newer key `pooling_mode`."""


def pooling_metadata(directory: Path, prefix: str, *, with_dense: bool = False) -> dict[str, object]:
    """`<prefix>.pooling_type`; empty where the directory is not one of sentence-transformers, or does not pool.

    Args:
        directory: of the model.
        prefix: of the key.
        with_dense: whether the family's program has matrices behind the pooling; `dense_weights` finds them.

    Raises:
        CorruptFileError: a file contradicts itself.
        SourceError: the settings of the pooling module are missing.
        UnsupportedModelError: another module, or another kind of pooling.
    """
    found: dict[str, object] = {}
    for kind, path in _modules(directory / FILE_NAME):
        if kind == _POOLING_MODULE:
            found[f"{prefix}.pooling_type"] = _read_mode(directory / path / "config.json")
        elif kind not in _SILENT_MODULES and not (with_dense and kind == _DENSE_MODULE):
            raise UnsupportedModelError(
                f"{directory / FILE_NAME}: memra does not run the module {kind!r} of sentence-transformers: "
                "use a model that ends in Pooling and Normalize"
            )
    return found


def dense_weights(directory: Path) -> dict[str, SafetensorsFile]:
    """Files of the matrices behind the pooling, by the name of their one tensor in GGUF, in the order of use.

    Raises:
        CorruptFileError: a file contradicts itself.
        SourceError: a file is missing.
        UnsupportedModelError: there are more than two, or one does more than multiply.
    """
    folders = [folder for kind, folder in _modules(directory / FILE_NAME) if kind == _DENSE_MODULE]
    if len(folders) > len(BEHIND_POOLING):
        raise UnsupportedModelError(f"{directory / FILE_NAME}: has {len(folders)} Dense modules; memra runs up to two")
    found = {}
    for name, folder in zip(BEHIND_POOLING, folders, strict=False):
        settings = directory / folder / "config.json"
        values = read_json(settings)
        if values.get("bias", True) is not False or values.get("activation_function") != _IDENTITY:
            raise UnsupportedModelError(f"{settings}: memra runs Dense modules without bias and activation alone")
        found[name] = map_safetensors(directory / folder / "model.safetensors")
        if list(found[name].tensors) != [DENSE_TENSOR]:
            raise CorruptFileError(f"{directory / folder}: does not hold {DENSE_TENSOR!r} alone: fetch it again")
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
