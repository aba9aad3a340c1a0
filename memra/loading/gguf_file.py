"""GGUF files opened: one file, or all shards of a split one, become a `Checkpoint`.

Called by whoever loads a model. Knows how files, shards and mappings relate; `gguf_header` knows the layout, and
`gguf_vocabulary` the tokenizer's keys. Refuses to know what a tensor is for.
"""

import mmap
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.fused_experts import split_fused_experts
from memra.loading.gguf_header import read_header
from memra.loading.gguf_heads import with_heads_joined
from memra.loading.gguf_vocabulary import read_vocabulary
from memra.loading.identity import file_stamp, identity_of
from memra.loading.metadata_overrides import MetadataOverride, apply_overrides

__all__ = ["open_gguf", "read_vocabulary"]

_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MODEL = "model"
"""As `general.type`; adapters, vision projectors and importance matrices have others."""
_MAX_SHARDS = 99_999
"""What five digits of a name can count."""


def open_gguf(path: Path, *, overrides: Sequence[MetadataOverride] = ()) -> Checkpoint:
    """Open a GGUF file, or a split one by its first shard.

    Args:
        path: the file.
        overrides: take the place of keys in the file, or add to them.

    Raises:
        SourceError: the file, or a shard, is not there or cannot be read.
        CorruptFileError: the file is no GGUF, ends early or contradicts itself.
        UnsupportedModelError: it is sound but holds something unknown.
        ConfigurationError: an override is of another type than the key in the file.
    """
    first = _map_file(path)
    metadata = apply_overrides(first.metadata, overrides, path=path)
    _check_identity(path, metadata)
    tensors = dict(first.tensors)
    size_bytes, stamps = first.size_bytes, [first.stamp]
    shard_paths = _further_shards(path, metadata)
    for number, shard_path in enumerate(shard_paths, start=1):
        shard = _map_file(shard_path)
        _check_shard(shard_path, shard.metadata, number=number, count=len(shard_paths) + 1)
        if repeated := tensors.keys() & shard.tensors.keys():
            raise CorruptFileError(
                f"{shard_path}: repeats the tensor {min(repeated)!r} of another shard: fetch all again"
            )
        tensors.update(shard.tensors)
        size_bytes += shard.size_bytes
        stamps.append(shard.stamp)
    expected = metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise CorruptFileError(f"{path}: promises {expected} tensors, its shards hold {len(tensors)}: fetch all again")
    return Checkpoint(
        path,
        metadata=metadata,
        read_vocabulary=partial(read_vocabulary, metadata, path=path),
        tensors=split_fused_experts(with_heads_joined(tensors)),
        size_bytes=size_bytes,
        identity=identity_of(stamps, tensors),
    )


@dataclass(frozen=True, slots=True)
class _MappedFile:
    metadata: dict[str, object]
    tensors: dict[str, StoredTensor]
    size_bytes: int
    stamp: str


def _map_file(path: Path) -> _MappedFile:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise CorruptFileError(f"{path}: is empty: fetch it again")
            buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            stamp = file_stamp(file.fileno())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    header = read_header(buffer, path)
    whole = np.frombuffer(buffer, dtype=np.uint8)
    tensors = {
        entry.name: StoredTensor(
            entry.name,
            entry.shape,
            entry.quant_type,
            whole[entry.start : entry.start + entry.num_bytes],
            mapping=buffer,
            offset=entry.start,
        )
        for entry in header.tensors
    }
    return _MappedFile(header.metadata, tensors, size, stamp)


def _check_identity(path: Path, metadata: dict[str, object]) -> None:
    split_number = metadata.get("split.no", 0)
    if split_number != 0:
        raise SourceError(
            f"{path}: is not the first shard of its split model (split.no is {split_number!r}): name the first shard "
            "instead"
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise CorruptFileError(f"{path}: names no architecture: fetch or convert the model again")
    kind = metadata.get("general.type", _MODEL)
    if kind != _MODEL:
        raise UnsupportedModelError(f"{path}: holds no model, but {kind!r} of one: name the model's own file")


def _check_shard(path: Path, metadata: dict[str, object], *, number: int, count: int) -> None:
    """A shard under another's name would give the right number of tensors and the wrong model."""
    found = metadata.get("split.no"), metadata.get("split.count")
    if found != (number, count):
        raise CorruptFileError(
            f"{path}: says that it is shard {found[0]!r} of {found[1]!r}, not {number} of {count} (counted from 0): "
            "fetch it again under its own name"
        )


def _further_shards(path: Path, metadata: dict[str, object]) -> list[Path]:
    match = _SHARD_NAME.fullmatch(path.name)
    count = metadata.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= _MAX_SHARDS:
        raise CorruptFileError(f"{path}: split.count is {count!r}, which is no number of shards: fetch it again")
    if count <= 1:
        return []
    if match is None or int(match["count"]) != count:
        raise CorruptFileError(
            f"{path}: is the first of {count} shards, but is not named ...-00001-of-{count:05d}.gguf: "
            "keep the names that the shards were published under"
        )
    if int(match["number"]) != 1:
        raise CorruptFileError(f"{path}: says that it is the first shard, but its name does not: rename or fetch again")
    return [path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(2, count + 1)]
