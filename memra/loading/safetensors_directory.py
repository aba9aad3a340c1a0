"""A model directory as published on the hub, opened as a `Checkpoint` in GGUF's terms.

Called by whoever loads a model. Knows which files make up a directory; `huggingface_config`, `huggingface_tensors` and
`tokenizer_files` know what is in them. Refuses to know what a tensor is for.
"""

from functools import partial
from pathlib import Path

from memra.errors import CorruptFileError, SourceError
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.gguf_file import open_gguf
from memra.loading.huggingface_config import Configuration, family_of, gguf_metadata, llama3_scaling
from memra.loading.huggingface_tensors import gguf_tensors, rope_factors
from memra.loading.identity import identity_of
from memra.loading.safetensors_file import SafetensorsFile, map_safetensors
from memra.loading.tokenizer_files import read_json, read_tokenizer


def open_directory(path: Path) -> Checkpoint:
    """Open a directory with `config.json` and safetensors weights, or with a single GGUF file.

    Raises:
        SourceError: files are missing.
        CorruptFileError: a file contradicts itself or ends early.
        UnsupportedModelError: the architecture, a tensor's name or its type is unknown.
    """
    config_path = path / "config.json"
    if not config_path.is_file():
        return open_gguf(_only_gguf(path))
    config = Configuration(read_json(config_path), config_path)
    family = family_of(config)
    metadata = gguf_metadata(config, family)
    stored, files = _map_weights(path)
    tied = config.values.get("tie_word_embeddings", family.ties_embeddings) is True
    tensors = gguf_tensors(stored, family, tied_embeddings=tied, path=path)
    if (scaling := llama3_scaling(config)) is not None:
        tensors["rope_freqs.weight"] = rope_factors(scaling)
    return Checkpoint(
        path,
        metadata=metadata,
        read_vocabulary=partial(read_tokenizer, path, config.values),
        tensors=tensors,
        size_bytes=sum(file.size_bytes for file in files),
        identity=identity_of((file.stamp for file in files), tensors),
    )


def _only_gguf(path: Path) -> Path:
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise SourceError(f"{path}: holds neither config.json nor a GGUF file: name a model file or directory")
    names = ", ".join(file.name for file in found)
    raise SourceError(f"{path}: holds several GGUF files: name one of {names}")


def _map_weights(path: Path) -> tuple[dict[str, StoredTensor], list[SafetensorsFile]]:
    index_path = path / "model.safetensors.index.json"
    if index_path.is_file():
        return _map_shards(path, index_path)
    weights_path = path / "model.safetensors"
    if not weights_path.is_file():
        raise SourceError(
            f"{path}: holds neither model.safetensors nor model.safetensors.index.json: fetch the weights"
        )
    single = map_safetensors(weights_path)
    return single.tensors, [single]


def _map_shards(path: Path, index_path: Path) -> tuple[dict[str, StoredTensor], list[SafetensorsFile]]:
    places = read_json(index_path).get("weight_map")
    if not isinstance(places, dict) or not all(_is_plain_name(name) for name in places.values()):
        raise CorruptFileError(f"{index_path}: has no 'weight_map' of file names in this directory: fetch it again")
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
