"""Matrices that GGUF files keep head by head, as the matrices that programs multiply with.

Trade: `attn_k_b` and `attn_v_b` of multi-head latent attention. Files keep the first so that queries are multiplied by
it, with a row an element of the narrow row; programs that compute keys need a row an element of a head. Called by
`gguf_file`; refuses to know families.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memra.loading.checkpoint import StoredTensor
from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.model_tensor import ModelTensor

_KEYS, _VALUES = ".attn_k_b.weight", ".attn_v_b.weight"
_NUM_DIMENSIONS = 3


def with_heads_joined(tensors: Mapping[str, StoredTensor]) -> dict[str, ModelTensor]:
    """The tensors of a file, with those that are kept by head as matrices; nothing is read."""
    joined: dict[str, ModelTensor] = {}
    for name, tensor in tensors.items():
        if len(tensor.shape) != _NUM_DIMENSIONS or not name.endswith((_KEYS, _VALUES)):
            joined[name] = tensor
        elif name.endswith(_VALUES):
            joined[name] = replace(tensor, shape=(tensor.shape[0] * tensor.shape[1], tensor.shape[2]))
        else:
            joined[name] = ConvertedTensor(name, _TurnedHeads(tensor))
    return joined


@dataclass(frozen=True, slots=True)
class _TurnedHeads:
    """Every head's matrix with rows and columns exchanged, as one matrix in float32; a `Conversion`.

    Quantised values share their scales along the other dimension, so they cannot keep their type.

    Attributes:
        source: `[heads, columns, rows of a head]`.
    """

    source: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """`[heads * rows of a head, columns]`."""
        heads, columns, rows = self.source.shape
        return heads * rows, columns

    @property
    def quant_type(self) -> str:
        """Float32, which holds the values of every type."""
        return "F32"

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end`."""
        _, columns, rows = self.source.shape
        pieces = []
        for head in range(begin // rows, (end - 1) // rows + 1):
            values = self.source.rows(head * columns, (head + 1) * columns)
            pieces.append(values.T[max(begin - head * rows, 0) : end - head * rows])
        return np.ascontiguousarray(np.concatenate(pieces)).view(np.uint8)

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        self.source.release()
