"""Weights for the torch executor: dequantised once, checked, on their device.

Trade: turns the words of a user (`auto`, `cuda:1`, `bfloat16`) into a device and a type, and the tensors of a file into
torch tensors. Refuses to know the file format and what the weights are for.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from memra.engine.executor import WeightTensor, WeightTensors
from memra.errors import ConfigurationError, CorruptFileError
from memra.layers.operators import Embed, Experts, Head, Linear
from memra.layers.program import Program

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Types of matrices and of the cache, by the name in the settings."""


def choose_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is the first CUDA device where there is one.

    Raises:
        ConfigurationError: the name is none of `auto`, `cpu`, `cuda` and `cuda:N`, or there is no such device.
    """
    num_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda", 0) if num_cuda else torch.device("cpu")
    if name == "cpu":
        return torch.device("cpu")
    kind, _, index = name.partition(":")
    if kind != "cuda" or (name != "cuda" and not (index.isascii() and index.isdecimal())):
        raise ConfigurationError(f"The device {name!r} is unknown; use auto, cpu, cuda or cuda:N.")
    if int(index or 0) >= num_cuda:
        raise ConfigurationError(f"The device {name!r} is not available: torch sees {num_cuda} CUDA devices; use cpu.")
    return torch.device("cuda", int(index or 0))


def choose_dtype(name: str) -> torch.dtype:
    """Return the torch type of that name.

    Raises:
        ConfigurationError: the torch executor does not compute in it.
    """
    if name not in DTYPES:
        raise ConfigurationError(f"The dtype {name!r} is not one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def load_weights(
    program: Program, tensors: WeightTensors, *, device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Dequantise every weight of a program.

    Returns:
        By name: matrices of embeddings, linears and head in `dtype`; norms, biases and frequency factors in float32.

    Raises:
        CorruptFileError: a tensor is missing, has another shape, or holds a value that is not finite.
    """
    matrices = set(_matrices_of(program))
    weights = {}
    for name, shape in program.weights.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise CorruptFileError(f"The file lacks the tensor {name}; fetch or convert it again.")
        values = _dequantise(tensor, shape)
        # torch's own allocation: the array's may lie at any address, and matrix kernels look at alignment.
        weight = torch.empty(shape, dtype=dtype if name in matrices else torch.float32, device=device)
        weight.copy_(torch.from_numpy(values))
        is_one_row = name in matrices and len(shape) == 1
        weights[name] = weight.unsqueeze(0) if is_one_row else weight
        tensor.release()
    return weights


def _matrices_of(program: Program) -> Iterator[str]:
    for operator in program:
        match operator:
            case Embed() | Linear() | Head():
                yield operator.weight
            case Experts():
                yield from (operator.gate, operator.up, operator.down)
            case _:
                pass


def _dequantise(tensor: WeightTensor, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if tuple(tensor.shape) != shape:
        raise CorruptFileError(f"The tensor {tensor.name} has the shape {tuple(tensor.shape)} instead of {shape}.")
    values = np.require(tensor.dequantise(), dtype=np.float32, requirements=["C", "W"])
    if values.shape != shape:
        raise CorruptFileError(f"The tensor {tensor.name} holds {values.size} values, not {shape}.")
    if not np.isfinite(values).all():
        raise CorruptFileError(
            f"The tensor {tensor.name} holds a value that is not finite (NaN or infinite); fetch the file again."
        )
    return values
