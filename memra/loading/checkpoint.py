"""A model file opened: what it says about itself, its vocabulary, and its tensors, memory-mapped.

Called by whoever loads a model. Knows how bytes become float32 values, and refuses to know what the values mean: model
families and executors do. Nothing is read from the file here until a tensor's `data` is touched.
"""

import math
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, cast

import gguf
import gguf.quants
import numpy as np
from numpy.typing import NDArray

from memra.errors import UnsupportedModelError
from memra.messages.vocabulary import Vocabulary


def bytes_per_row(columns: int, quant_type: str) -> int | None:
    """Bytes that one row of `columns` values takes, or None where the blocks of the type do not fit the row.

    Block and type sizes are those of ggml, as the `gguf` package lists them.
    """
    block_size, type_size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    if columns % block_size:
        return None
    return columns // block_size * type_size


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """One tensor as the file stores it.

    Attributes:
        name: in GGUF's terms, such as `blk.0.attn_q.weight`.
        shape: outermost first, `(rows, columns)` for a matrix.
        quant_type: GGML type name, such as `Q4_K` or `F32`.
        data: uint8 `[size in bytes]`, read-only, usually a view of the mapped file; it stays readable for as long as
            somebody holds it, also after the checkpoint is closed.
        mapping: the mapped file that `data` lies in, from `offset` on; None for values in memory of their own.
        offset: bytes into `mapping`.
    """

    name: str
    shape: tuple[int, ...]
    quant_type: str
    data: NDArray[np.uint8]
    mapping: mmap.mmap | None = field(default=None, repr=False)
    offset: int = 0

    def release(self) -> None:
        """Say that the bytes have been read: the system may take their memory back, and reads them again if need be.

        Without this, a file whose weights were copied elsewhere counts twice in the process's resident memory.
        """
        if self.mapping is None:
            return
        first = -(-self.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (self.offset + self.data.size) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            self.mapping.madvise(mmap.MADV_DONTNEED, first, last - first)

    def dequantise(self) -> NDArray[np.float32]:
        """All values as a new float32 array in `shape`.

        Raises:
            UnsupportedModelError: the `gguf` package cannot dequantise this type.
        """
        quant_type = gguf.GGMLQuantizationType[self.quant_type]
        num_bytes = bytes_per_row(self.shape[-1], self.quant_type)
        if num_bytes is None or self.data.size != math.prod(self.shape[:-1]) * num_bytes:
            raise ValueError(
                f"{self.name}: {self.data.size} bytes do not hold {self.shape} values of {self.quant_type}"
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a damaged scale is the caller's finding, not a warning
                values = gguf.quants.dequantize(self.data.reshape(-1, num_bytes), quant_type)
        except NotImplementedError as error:
            raise UnsupportedModelError(
                f"tensor {self.name!r} is stored as {self.quant_type}, which cannot be dequantised: "
                "convert the model to a common type such as Q4_K, Q8_0 or F16"
            ) from error
        values = cast("NDArray[np.float32]", values).reshape(self.shape)
        return values if values.flags.writeable else values.copy()


class Checkpoint:
    """An opened model.

    Closing drops the checkpoint's own hold on the mapped file; the mapping itself ends when the last tensor's `data`
    that somebody holds is gone. The file must not be shortened while it is open: the system would end the process.

    Attributes:
        path: the file or directory that was opened.
        architecture: the family, in GGUF's terms (`llama`, `qwen2`, `gemma3`).
        metadata: GGUF keys (`llama.block_count`) to str, bool, int, float, or a tuple of one of these.
        size_bytes: of all files that make up the model.
        is_directory: True for a safetensors directory.
        identity: a word that differs when a file was changed or replaced, or holds its tensors elsewhere.
    """

    def __init__(  # noqa: PLR0913  (everything that a reader finds)
        self,
        path: Path,
        *,
        metadata: Mapping[str, object],
        read_vocabulary: Callable[[], Vocabulary],
        tensors: Mapping[str, StoredTensor],
        size_bytes: int,
        identity: str,
    ) -> None:
        """Take over what a reader found; `metadata` names the architecture.

        The vocabulary is read when it is first asked for: a file of an unknown architecture must be refused for that,
        not for what its vocabulary lacks.
        """
        self.path = path
        self.architecture = str(metadata["general.architecture"])
        self.metadata: Mapping[str, object] = MappingProxyType(dict(metadata))
        self._read_vocabulary = read_vocabulary
        self.size_bytes = size_bytes
        self.identity = identity
        self.is_directory = path.is_dir()
        self._tensors = dict(tensors)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer, in plain values.

        Raises:
            CorruptFileError: the vocabulary contradicts itself.
            UnsupportedModelError: it has a form that memra does not know.
        """
        return self._read_vocabulary()

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Tensors by GGUF name, in the order of the file; empty after `close`."""
        return MappingProxyType(self._tensors)

    def close(self) -> None:
        """Let go of the tensors; may be called more than once."""
        self._tensors = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r}, {self.architecture!r}, num_tensors={len(self._tensors)})"
