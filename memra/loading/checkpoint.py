"""A model file opened: what it says about itself, its vocabulary, and its tensors, memory-mapped.

Called by whoever loads a model. Knows how bytes become float32 values, and refuses to know what the values mean: model
families and executors do. Nothing is read from the file here until a tensor's `data` is touched.
"""

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from memra.loading.model_tensor import ModelTensor, bytes_per_row, dequantised, num_rows
from memra.messages.vocabulary import Vocabulary

__all__ = ["Checkpoint", "StoredTensor", "bytes_per_row"]


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

    @property
    def num_bytes(self) -> int:
        """Size of `data`."""
        return self.data.nbytes

    def dequantise(self) -> NDArray[np.float32]:
        """All values as a new float32 array in `shape`.

        Raises:
            UnsupportedModelError: the `gguf` package cannot dequantise this type.
        """
        return dequantised(self.data, self.shape, self.quant_type, name=self.name)

    def rows(self, begin: int, end: int) -> NDArray[np.float32]:
        """Values of some rows, float32 `[end - begin, columns]`.

        Raises:
            UnsupportedModelError: the `gguf` package cannot dequantise this type.
        """
        row_bytes = self.data.size // max(num_rows(self.shape), 1)
        data = self.data[begin * row_bytes : end * row_bytes]
        return dequantised(data, (end - begin, self.shape[-1]), self.quant_type, name=self.name)

    def renamed(self, name: str) -> "StoredTensor":
        """The same tensor under another name."""
        return replace(self, name=name)


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
        tensors: Mapping[str, ModelTensor],
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
    def tensors(self) -> Mapping[str, ModelTensor]:
        """Tensors by GGUF name, in the order of the file; empty after `close`."""
        return MappingProxyType(self._tensors)

    def with_tensors(self, tensors: Mapping[str, ModelTensor], *, change: str) -> "Checkpoint":
        """The same model with other tensors under the same names; close only the one that is returned.

        Args:
            tensors: by GGUF name.
            change: tells them from other tensors made from the same files; becomes part of `identity`.
        """
        return Checkpoint(
            self.path,
            metadata=self.metadata,
            read_vocabulary=self._read_vocabulary,
            tensors=tensors,
            size_bytes=self.size_bytes,
            identity=f"{self.identity}-{change}",
        )

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
