"""The front part of a GGUF file, read with a bound on every step: a header is believed only after it was measured.

Called by `gguf_file`. Knows the layout of GGUF versions 2 and 3 (the format's specification in the ggml project) and
refuses to know what any key means, `general.alignment` aside. A claim of 2**60 tensors costs nothing, because nothing
is allocated on the strength of a count alone.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import NoReturn

import gguf
import numpy as np

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import bytes_per_row

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
"""GGML_MAX_DIMS in ggml."""
MAX_DIMENSION = 1 << 40
MAX_NAME_BYTES = (1 << 16) - 1
"""The format's own limit for keys."""
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_ARRAY_ENTRIES = 1 << 22
"""The largest vocabularies known have 2**18 tokens and 2**19 merge rules."""
MIN_KEY_BYTES = 13
"""Length of the name, type and a one-byte value."""
MIN_TENSOR_BYTES = 32
"""Length of the name, number of dimensions, one dimension, type, offset."""

_STRING_TYPE = 8
_ARRAY_TYPE = 9
_BOOL_TYPE = 7
# By GGUF's value type number: uint8, int8, uint16, int16, uint32, int32, float32, bool, and 10 to 12: 64-bit.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL_TYPE: "?", 10: "Q", 11: "q", 12: "d"}
_SCALAR_STRUCTS = {number: struct.Struct(f"<{code}") for number, code in _SCALARS.items()}
_U64 = struct.Struct("<Q")
_REMEDY = "the file is damaged or incomplete: fetch it again"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        shape: outermost first.
        start: byte position in the file.
        num_bytes: length of the data.
    """

    name: str
    shape: tuple[int, ...]
    quant_type: str
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything before the data of a GGUF file.

    Attributes:
        metadata: keys as in the file, to plain values; arrays are tuples.
        tensors: in the order of the file; every one lies inside the file and no two overlap.
    """

    metadata: dict[str, object]
    tensors: tuple[TensorEntry, ...]


def read_header(buffer: mmap, path: Path) -> GgufHeader:
    """Walk the header of a mapped GGUF file.

    Raises:
        CorruptFileError: the file is no GGUF of a known version, ends early or contradicts itself.
        UnsupportedModelError: a tensor has a type that the `gguf` package does not know.
    """
    walker = _Walker(buffer, path)
    _read_version(walker)
    num_tensors = walker.count("tensors", limit=MAX_TENSORS, min_bytes=MIN_TENSOR_BYTES)
    num_keys = walker.count("keys", limit=MAX_KEYS, min_bytes=MIN_KEY_BYTES)
    metadata = _read_metadata(walker, num_keys)
    entries = _read_tensor_table(walker, num_tensors)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        walker.refuse(f"general.alignment is {alignment!r}, not a power of two")
    data_start = -(-walker.position // alignment) * alignment
    return GgufHeader(metadata, _place_tensors(walker, entries, data_start=data_start, alignment=alignment))


class _Walker:
    """A position in the file that can only move forward, and never past the end."""

    def __init__(self, buffer: mmap, path: Path) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.path = path
        self.position = 0

    def refuse(self, reason: str) -> NoReturn:
        raise CorruptFileError(f"{self.path}: {reason}; {_REMEDY}")

    def advance(self, num_bytes: int, what: str) -> int:
        """Claim the next bytes; returns where they start."""
        start = self.position
        if num_bytes > self.size - start:
            self.refuse(f"ends at byte {self.size}, inside {what} at byte {start}")
        self.position = start + num_bytes
        return start

    def scalar(self, number: int, what: str) -> int | float | bool:
        layout = _SCALAR_STRUCTS[number]
        value: int | float | bool
        (value,) = layout.unpack_from(self.buffer, self.advance(layout.size, what))
        return value

    def u32(self, what: str) -> int:
        return int(self.scalar(4, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(10, what))

    def count(self, what: str, *, limit: int, min_bytes: int) -> int:
        """A number of things that are to follow, refused where they could not fit."""
        value = self.u64(f"the number of {what}")
        if value > limit or value * min_bytes > self.size - self.position:
            self.refuse(f"claims {value} {what}, more than a file of {self.size} bytes can hold")
        return value

    def name(self, what: str) -> str:
        """A string of bounded length, fit to be repeated in a message."""
        length = self.u64(what)
        if length > MAX_NAME_BYTES:
            self.refuse(f"{what} claims a length of {length} bytes")
        return self.text(length, what)

    def string(self, what: str) -> str:
        return self.text(self.u64(what), what)

    def text(self, length: int, what: str) -> str:
        start = self.advance(length, what)
        try:
            return self.buffer[start : start + length].decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} at byte {start} is not valid UTF-8")

    def strings(self, count: int, what: str) -> tuple[str, ...]:
        """An array of strings; written flat, since a vocabulary has hundreds of thousands of them."""
        buffer, size, unpack_from = self.buffer, self.size, _U64.unpack_from
        position = self.position
        found = []
        try:
            for _ in range(count):
                start = position + 8
                position = start + unpack_from(buffer, position)[0]
                if position > size:
                    break
                found.append(buffer[start:position].decode())
        except UnicodeDecodeError:
            self.refuse(f"entry {len(found)} of {what} is not valid UTF-8")
        except struct.error:
            position = size + 1
        if position > size:
            self.refuse(f"ends at byte {size}, inside entry {len(found)} of {what}")
        self.position = position
        return tuple(found)


def _read_version(walker: _Walker) -> None:
    start = walker.advance(len(MAGIC), "the magic")
    magic = walker.buffer[start : start + len(MAGIC)]
    if magic != MAGIC:
        raise CorruptFileError(
            f"{walker.path}: starts with {magic!r}, not {MAGIC!r}: it is no GGUF file: fetch or name another"
        )
    version = walker.u32("the version")
    if version not in VERSIONS:
        if version & 0xFFFF == 0:
            raise CorruptFileError(
                f"{walker.path}: is a big-endian GGUF file: fetch or convert the little-endian version of the model"
            )
        raise CorruptFileError(f"{walker.path}: has GGUF version {version}, not 2 or 3: convert the model again")


def _read_metadata(walker: _Walker, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(count):
        key = walker.name(f"the name of key {index}")
        if key in metadata:
            walker.refuse(f"has the key {key!r} twice")
        metadata[key] = _read_value(walker, key)
    return metadata


def _read_value(walker: _Walker, key: str) -> object:
    what = f"the value of {key!r}"
    number = walker.u32(what)
    if number == _STRING_TYPE:
        return walker.string(what)
    if number == _ARRAY_TYPE:
        return _read_array(walker, what)
    if number not in _SCALARS:
        walker.refuse(f"{what} has the unknown type {number}")
    return walker.scalar(number, what)


def _read_array(walker: _Walker, what: str) -> tuple[object, ...]:
    number = walker.u32(what)
    if number == _STRING_TYPE:
        return walker.strings(walker.count(f"strings in {what}", limit=MAX_ARRAY_ENTRIES, min_bytes=_U64.size), what)
    if number == _ARRAY_TYPE:
        walker.refuse(f"{what} is an array of arrays, which no model's key is")
    if number not in _SCALARS:
        walker.refuse(f"{what} is an array of the unknown type {number}")
    width = _SCALAR_STRUCTS[number].size
    count = walker.count(f"entries in {what}", limit=MAX_ARRAY_ENTRIES, min_bytes=width)
    start = walker.advance(count * width, what)
    values = np.frombuffer(walker.buffer[start : start + count * width], dtype=f"<{_SCALARS[number]}")
    return tuple(values.tolist())


def _read_tensor_table(walker: _Walker, count: int) -> list[TensorEntry]:
    """The entries in the order of the file; `start` still counts from the beginning of the data."""
    entries: dict[str, TensorEntry] = {}
    for index in range(count):
        name = walker.name(f"the name of tensor {index}")
        if name in entries:
            walker.refuse(f"has the tensor {name!r} twice")
        entries[name] = _read_tensor_entry(walker, name)
    return list(entries.values())


def _read_tensor_entry(walker: _Walker, name: str) -> TensorEntry:
    what = f"the entry of tensor {name!r}"
    num_dimensions = walker.u32(what)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        walker.refuse(f"tensor {name!r} has {num_dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
    shape = tuple(walker.u64(what) for _ in range(num_dimensions))[::-1]  # the file stores the innermost first
    if not all(1 <= dimension <= MAX_DIMENSION for dimension in shape):
        walker.refuse(f"tensor {name!r} has the impossible shape {shape}")
    quant_type = _quant_type_name(walker, name, walker.u32(what))
    row_bytes = bytes_per_row(shape[-1], quant_type)
    if row_bytes is None:
        walker.refuse(f"tensor {name!r} has rows of {shape[-1]} values, which blocks of {quant_type} do not fill")
    num_bytes = row_bytes
    for dimension in shape[:-1]:
        num_bytes *= dimension
    return TensorEntry(name, shape, quant_type, walker.u64(what), num_bytes)


def _quant_type_name(walker: _Walker, name: str, number: int) -> str:
    known: Callable[[int], gguf.GGMLQuantizationType] = gguf.GGMLQuantizationType
    try:
        return known(number).name
    except ValueError:
        raise UnsupportedModelError(
            f"{walker.path}: tensor {name!r} has the unknown GGML type number {number}: "
            "the file is damaged, or newer than the installed gguf package"
        ) from None


def _place_tensors(
    walker: _Walker, entries: list[TensorEntry], *, data_start: int, alignment: int
) -> tuple[TensorEntry, ...]:
    """Count `start` from the beginning of the file, and see that all data lies inside it and apart."""
    placed = []
    for entry in entries:
        start = data_start + entry.start
        if entry.start % alignment:
            walker.refuse(f"tensor {entry.name!r} starts at {entry.start}, not at a multiple of {alignment}")
        if start + entry.num_bytes > walker.size:
            walker.refuse(
                f"ends at byte {walker.size}, but tensor {entry.name!r} lies at {start} to {start + entry.num_bytes}"
            )
        placed.append(TensorEntry(entry.name, entry.shape, entry.quant_type, start, entry.num_bytes))
    for first, second in pairwise(sorted(placed, key=lambda entry: entry.start)):
        if first.start + first.num_bytes > second.start:
            walker.refuse(f"tensors {first.name!r} and {second.name!r} overlap")
    return tuple(placed)
