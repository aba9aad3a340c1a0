"""One file of the repack cache: the tiles of all matrices of one model, mapped as they are into every process.

Trade: the format. A page or more of header, which says from which model, layouts and matrices the tiles were made, then
the tiles, each at the start of a page. A file is believed when its header is, byte for byte, the one that is expected
and its size is right; nothing of a foreign file is ever interpreted. Refuses to know folders, limits and how tiles are
made; `memra.engine.repack_cache` calls it.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from memra_kernels.repacking import TAIL_BYTES, layout_version, tile_bytes
from numpy.typing import NDArray

FILE_SUFFIX = ".memra-tiles"

Tiles = Mapping[str, NDArray[np.uint8]]
"""Tiles by tensor name, read-only; the mapping of the file lives for as long as one of them is held."""

_MAGIC = b"memra repacked weights 1\n"
_PAGE = 4096
_HUGE_PAGE = 2 << 20


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a model.

    Attributes:
        name: of the tensor.
        quant_type: a type that has a tiled layout, in GGML's terms.
        rows: outputs.
        columns: inputs.
        has_tiles: False for a table that was only checked, and is read where the model file has it.
    """

    name: str
    quant_type: str
    rows: int
    columns: int
    has_tiles: bool = True

    @property
    def num_bytes(self) -> int:
        """Size of its tiles."""
        return tile_bytes(self.quant_type, rows=self.rows, columns=self.columns)


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What one file holds, and where; made from the model alone, before there is a file.

    Attributes:
        header: the bytes in front of the first tile.
        places: first byte and size of each matrix's tiles.
        num_bytes: size of the file.
    """

    header: bytes
    places: Mapping[str, tuple[int, int]]
    num_bytes: int

    @classmethod
    def of(cls, identity: str, matrices: Sequence[Matrix]) -> "FileLayout":
        """Place the matrices of the model that `identity` tells from all others.

        Raises:
            NativeError: a matrix has no tiled layout.
        """
        described = [(m.name, m.quant_type, m.rows, m.columns, m.has_tiles) for m in matrices]
        text = json.dumps({"model": identity, "layouts": layout_version(), "matrices": described})
        header = _MAGIC + text.encode() + b"\n"
        header += bytes(-len(header) % _PAGE)
        places, end = {}, len(header)
        for matrix in matrices:
            if matrix.has_tiles:
                places[matrix.name] = (end, matrix.num_bytes)
                end += -(-matrix.num_bytes // _PAGE) * _PAGE
        return cls(header, places, end + TAIL_BYTES)

    @property
    def file_name(self) -> str:
        """A name that no file of another content has."""
        return hashlib.sha256(self.header).hexdigest()[:32] + FILE_SUFFIX

    def map(self, descriptor: int) -> Tiles | None:
        """Map an open file; None if it is not the file that is described here.

        Raises:
            OSError: it cannot be read or mapped.
        """
        if os.fstat(descriptor).st_size != self.num_bytes:
            return None
        if os.pread(descriptor, len(self.header), 0) != self.header:
            return None
        mapping = mmap.mmap(descriptor, self.num_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        with suppress(OSError):  # a system without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(mapping, np.uint8)
        return {name: whole[first : first + size] for name, (first, size) in self.places.items()}


def open_tiles(path: Path, layout: FileLayout) -> Tiles | None:
    """Map a file by name and note that it was used; None if it is absent or not the one that is described.

    Raises:
        OSError: it is there, but cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return layout.map(descriptor)
    finally:
        os.close(descriptor)


class TileWriter:
    """Writes a file from its beginning, in pieces of a huge page, so that the system can keep and map it in huge pages.

    Written, not mapped: a full disk is then an error here, and not the end of the process. Huge pages matter: with half
    of the file in small ones, a decode step of one row took 3 % longer.
    """

    def __init__(self, descriptor: int) -> None:
        """Begin at offset 0; the file stays the caller's."""
        self._descriptor = descriptor
        self._buffer = memoryview(bytearray(_HUGE_PAGE))
        self._written = self._filled = 0

    def write(self, data: NDArray[np.uint8] | bytes) -> None:
        """Append bytes.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        rest = data.data if isinstance(data, np.ndarray) else memoryview(data)
        while rest:
            size = min(len(rest), _HUGE_PAGE - self._filled)
            self._buffer[self._filled : self._filled + size] = rest[:size]
            self._filled += size
            rest = rest[size:]
            if self._filled == _HUGE_PAGE:
                self.flush()

    def pad(self, offset: int) -> None:
        """Append zeros up to an offset."""
        self.write(bytes(offset - self._written - self._filled))

    def flush(self) -> None:
        """Hand everything to the system; only the last flush of a file may find a part of a piece.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        rest = self._buffer[: self._filled]
        while rest:
            size = os.pwrite(self._descriptor, rest, self._written)
            self._written += size
            rest = rest[size:]
        self._filled = 0
