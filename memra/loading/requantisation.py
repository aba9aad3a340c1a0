"""Weights made smaller while they are loaded, because the user asked for it with `MEMRA_QUANT`.

Trade: which tensors of a model bear it, and in which GGML type each ends. Refuses to know families: names are GGUF's.
Called by whoever serves a model. Nothing is computed before a tensor is asked for.

Only matrices of F32, F16 or BF16 change; what the file has quantised already stays. Norms, biases, routers
(`ffn_gate_inp`) and matrices of one row stay too: they are small, and an error in them reaches everything. The table of
embeddings stays where it is only looked up; where it serves as the head as well it is read whole for every token, and
becomes Q8_0, as does a head of its own: four bits there cost more than they save.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

import gguf
import gguf.quants
import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError
from memra.loading.checkpoint import Checkpoint
from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.model_tensor import FLOAT_TYPES, ModelTensor, bytes_per_row, num_rows
from memra.loading.precision import word_of
from memra.loading.q4_k import quantise_q4_k

_EMBEDDING: Final = "token_embd.weight"
_HEAD: Final = "output.weight"
_ROUTER: Final = "ffn_gate_inp"


class WeightQuant(StrEnum):
    """What `MEMRA_QUANT` may say."""

    NONE = "none"
    Q8_0 = "q8_0"
    Q4_K = "q4_k"


def requantised(checkpoint: Checkpoint, quant: WeightQuant) -> Checkpoint:
    """The same model with smaller weights; close only the one that is returned."""
    if quant is WeightQuant.NONE:
        return checkpoint
    return checkpoint.with_tensors(requantised_tensors(checkpoint.tensors, quant), change=quant.value)


def requantised_tensors(tensors: Mapping[str, ModelTensor], quant: WeightQuant) -> dict[str, ModelTensor]:
    """All tensors of a model, those that bear it as lazy conversions to the type that was asked for.

    Rows that no block of Q4_K divides become Q8_0, and those that no block of Q8_0 divides stay as they are.
    """
    if quant is WeightQuant.NONE:
        return dict(tensors)
    is_tied = _HEAD not in tensors
    found = {}
    for name, tensor in tensors.items():
        target = _target(tensor, quant, is_tied=is_tied)
        found[name] = tensor if target is None else ConvertedTensor(name, _Requantised(tensor, target))
    return found


def _target(tensor: ModelTensor, quant: WeightQuant, *, is_tied: bool) -> str | None:
    is_matrix = len(tensor.shape) > 1 and num_rows(tensor.shape) > 1 and tensor.name.endswith(".weight")
    stays = _ROUTER in tensor.name or "norm" in tensor.name or (tensor.name == _EMBEDDING and not is_tied)
    if not is_matrix or stays or tensor.quant_type not in FLOAT_TYPES:
        return None
    wanted = ["Q8_0"]
    if quant is WeightQuant.Q4_K and tensor.name not in {_EMBEDDING, _HEAD}:
        wanted.insert(0, "Q4_K")
    return next((kind for kind in wanted if bytes_per_row(tensor.shape[-1], kind) is not None), None)


@dataclass(frozen=True, slots=True)
class _Requantised:
    """One weight in fewer bits; a `Conversion`."""

    source: ModelTensor
    quant_type: str

    @property
    def precision(self) -> str | None:
        return word_of(self.quant_type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows in `quant_type`.

        Raises:
            CorruptFileError: a value is not finite, which would silently become some other one.
        """
        values = self.source.rows(begin, end)
        if not np.isfinite(values).all():
            raise CorruptFileError(
                f"the tensor {self.source.name!r} holds a value that is not finite (NaN or infinite): fetch it again"
            )
        if self.quant_type == "Q4_K":
            return quantise_q4_k(values)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # scales beyond float16 are found when used
            blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType[self.quant_type])
        return cast("NDArray[np.uint8]", blocks)

    def release(self) -> None:
        self.source.release()
