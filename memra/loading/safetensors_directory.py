"""A model directory as published on the hub, opened as a `Checkpoint` in GGUF's terms.

Called by whoever loads a model. Knows which files make up a directory; `huggingface`, `quantised_weights` and
`tokenizer_files` know what is in them. Refuses to know what a tensor is for.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.generation_config import sampling_metadata
from memra.loading.gguf_file import open_gguf
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.pooling import DENSE_TENSOR, dense_weights, pooling_metadata
from memra.loading.huggingface.registry import family_of, gguf_metadata, text_configuration
from memra.loading.huggingface.tensors import gguf_tensors
from memra.loading.identity import identity_of
from memra.loading.json_files import read_json
from memra.loading.quantised_weights import assemble_weights
from memra.loading.quantization_config import read_scheme
from memra.loading.safetensors_file import SafetensorsFile, map_safetensors
from memra.loading.tokenizer_files import read_tokenizer


def open_directory(path: Path) -> Checkpoint:
    """Open a directory with `config.json` and safetensors weights, or with a single GGUF file.

    Raises:
        SourceError: files are missing.
        CorruptFileError: a file contradicts itself or ends early.
        UnsupportedModelError: the architecture, a quantisation, a tensor's name or its type is unknown, or the files
            have the layout of another tool.
    """
    config_path = path / "config.json"
    if not config_path.is_file():
        _refuse_other_layouts(path)
        return open_gguf(_only_gguf(path))
    config = Configuration(read_json(config_path), config_path)
    family = family_of(config)
    scheme = read_scheme(config)
    text = text_configuration(config, family)
    pooling = pooling_metadata(path, family.gguf_name, with_dense=family.has_dense_modules)
    if pooling:
        family = replace(family, has_head=False)
    metadata = pooling | gguf_metadata(text, family) | sampling_metadata(path)
    parts, files = _map_weights(path)
    if family.has_dense_modules:
        dense = dense_weights(path)
        parts |= {name: file.tensors[DENSE_TENSOR].renamed(name) for name, file in dense.items()}
        files += dense.values()
    # What no program reads need not be of a type that weights have: encoders keep their positions' numbers.
    wanted = {name: tensor for name, tensor in parts.items() if not name.startswith(family.ignored)}
    stored = assemble_weights(wanted, scheme, path=path)
    tied = config.values.get("tie_word_embeddings", text.values.get("tie_word_embeddings", family.ties_embeddings))
    tensors = gguf_tensors(stored, family, text, tied_embeddings=tied is True, path=path)
    return Checkpoint(
        path,
        metadata=metadata,
        read_vocabulary=partial(read_tokenizer, path, config.values),
        tensors=tensors,
        size_bytes=sum(file.size_bytes for file in files),
        identity=identity_of((*(file.stamp for file in files), repr(scheme)), parts),
    )


def _only_gguf(path: Path) -> Path:
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise SourceError(f"{path}: holds neither config.json nor a GGUF file: name a model file or directory")
    names = ", ".join(file.name for file in found)
    raise SourceError(f"{path}: holds several GGUF files: name one of {names}")


def _refuse_other_layouts(path: Path) -> None:
    """Name what lies in the directory instead of the files that memra reads.

    Raises:
        UnsupportedModelError: a layout of other tools.
    """
    if (path / "params.json").is_file() or any(path.glob("consolidated*")):
        raise UnsupportedModelError(
            f"{path}: holds params.json and consolidated weights, the layout of Mistral's and Meta's own tools: "
            "fetch the files with config.json and model.safetensors of the same model, or a GGUF file"
        )
    if any(path.glob("pytorch_model*.bin")):
        raise UnsupportedModelError(
            f"{path}: holds weights as pytorch_model.bin, which can run code when opened: "
            "fetch the safetensors files of the same model, or a GGUF file"
        )


def _map_weights(path: Path) -> tuple[dict[str, StoredTensor], list[SafetensorsFile]]:
    index_path = path / "model.safetensors.index.json"
    if index_path.is_file():
        return _map_shards(path, index_path)
    weights_path = path / "model.safetensors"
    if not weights_path.is_file():
        _refuse_other_layouts(path)
        raise SourceError(
            f"{path}: holds neither model.safetensors nor model.safetensors.index.json: fetch the weights"
        )
    single = map_safetensors(weights_path)
    return single.tensors, [single]


def _map_shards(path: Path, index_path: Path) -> tuple[dict[str, StoredTensor], list[SafetensorsFile]]:
    places = read_json(index_path).get("weight_map")
    if not isinstance(places, dict) or not all(_is_plain_name(name) for name in places.values()):
        raise CorruptFileError(f"{index_path}: has no 'weight_map' of file names in this directory: fetch it again")
    if missing := sorted(name for name in set(places.values()) if not (path / name).is_file()):
        raise SourceError(f"{index_path}: names {missing[0]}, which is not there: fetch all shards of the model")
    shards = {name: map_safetensors(path / name) for name in sorted(set(places.values()))}
    tensors = {}
    for name, shard_name in places.items():
        if name not in shards[shard_name].tensors:
            raise CorruptFileError(
                f"{path / shard_name}: lacks the tensor {name!r} that the index promises: fetch it again"
            )
        tensors[name] = shards[shard_name].tensors[name]
    return tensors, list(shards.values())


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name not in {"", ".", ".."}
