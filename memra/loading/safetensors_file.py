"""One safetensors file: its header checked, its tensors mapped.

Called by `safetensors_directory`. Knows the layout of the format (an 8-byte length, a JSON header, the data) and
refuses to know what a tensor is for. The safetensors package reads no bfloat16 into numpy, hence this reader.
"""

import json
import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.identity import file_stamp
from memra.loading.model_tensor import ModelTensor

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""

_LENGTH_BYTES: Final = 8
_WIDTHS: Final = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I64": 8,
    "I32": 4,
    "I8": 1,
    "U8": 1,
}
"""Bytes of an element. The types below two bytes and the integers are parts of quantised weights."""
_MAX_DIMENSIONS: Final = 8


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A mapped file.

    Attributes:
        tensors: by the name in the file, with the element type of the file as `quant_type`; the mapping lives for as
            long as one of them is held.
        size_bytes: of the whole file.
        stamp: that tells the file from another one.
    """

    tensors: dict[str, StoredTensor]
    size_bytes: int
    stamp: str


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int


def map_safetensors(path: Path) -> SafetensorsFile:
    """Open one safetensors file.

    Raises:
        SourceError: the file is not there or cannot be read.
        CorruptFileError: the header contradicts itself or the file.
        UnsupportedModelError: a tensor is of a type that no weight here is made of.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < _LENGTH_BYTES:
                raise _corrupt(path, f"has only {size} bytes")
            buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            stamp = file_stamp(file.fileno())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    header_bytes = int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    if header_bytes > min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
        raise _corrupt(path, f"claims a header of {header_bytes} bytes in a file of {size}")
    data_start = _LENGTH_BYTES + header_bytes
    entries = _read_entries(buffer[_LENGTH_BYTES:data_start], path, data_bytes=size - data_start)
    return SafetensorsFile({entry.name: _stored(entry, buffer, data_start) for entry in entries}, size, stamp)


def _corrupt(path: Path, reason: str) -> CorruptFileError:
    return CorruptFileError(f"{path}: {reason}: it is no safetensors file, or damaged: fetch it again")


def _read_entries(header: bytes, path: Path, *, data_bytes: int) -> list[_Entry]:
    try:
        names: object = json.loads(header, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"has a header that is not valid JSON ({error})") from None
    if not isinstance(names, dict):
        raise _corrupt(path, "has a header that is no JSON object")
    entries = [
        _read_entry(name, value, path, data_bytes=data_bytes) for name, value in names.items() if name != "__metadata__"
    ]
    for first, second in pairwise(sorted(entries, key=lambda entry: entry.begin)):
        if first.end > second.begin:
            raise _corrupt(path, f"has overlapping tensors {first.name!r} and {second.name!r}")
    return entries


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _read_entry(name: str, value: object, path: Path, *, data_bytes: int) -> _Entry:
    if not isinstance(value, dict):
        raise _corrupt(path, f"has no description of tensor {name!r}")
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:  # noqa: PLR2004  (begin and end)
        raise _corrupt(path, f"describes tensor {name!r} wrongly")
    if len(shape) > _MAX_DIMENSIONS:
        raise _corrupt(path, f"gives tensor {name!r} {len(shape)} dimensions")
    if dtype not in _WIDTHS:
        raise UnsupportedModelError(
            f"{path}: tensor {name!r} is of type {dtype!r}, not one of {', '.join(_WIDTHS)}: "
            "use the unquantised model or a GGUF file"
        )
    begin, end = offsets
    if end - begin != math.prod(shape) * _WIDTHS[dtype] or end > data_bytes:
        raise _corrupt(path, f"places tensor {name!r} at {begin} to {end}, which fits neither its shape nor the file")
    return _Entry(name, tuple(shape), dtype, begin, end)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _stored(entry: _Entry, buffer: mmap.mmap, data_start: int) -> StoredTensor:
    offset = data_start + entry.begin
    data = np.frombuffer(buffer, dtype=np.uint8)[offset : data_start + entry.end]
    return StoredTensor(entry.name, entry.shape, entry.dtype, data, mapping=buffer, offset=offset)


def with_values_changed(
    tensor: ModelTensor, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> StoredTensor:
    """The same tensor with other values, kept as float32 in memory: for the small weights whose convention differs."""
    values = np.ascontiguousarray(change(tensor.dequantise()), dtype=np.float32)
    return StoredTensor(tensor.name, tensor.shape, "F32", values.reshape(-1).view(np.uint8))
