"""The matrices of a program as the native engine keeps them: which there are, and how the repack cache gets them.

Trade: knows which tensors are repacked, which are read where the file has them, and in which stored form. Called by
`memra.engine.cpu_executor` and `cpu_plan`. Refuses to know steps, buffers and files.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from memra_kernels.native import GGML_TYPES, NativeError, ThreadPool
from memra_kernels.repacking import repack
from numpy.typing import NDArray

from memra.engine.executor import WeightTensor, WeightTensors
from memra.engine.repack_cache import RepackCache
from memra.engine.repack_file import Matrix, Tiles
from memra.errors import CorruptFileError
from memra.layers.operators import Embed, Experts, Head, Linear, Operator
from memra.layers.program import Program


def find_tensor(program: Program, tensors: WeightTensors, name: str) -> WeightTensor:
    """The tensor of this name.

    Raises:
        CorruptFileError: it is missing, or has another shape than the program asks for.
    """
    tensor = tensors.get(name)
    if tensor is None:
        raise CorruptFileError(f"The model file has no tensor {name}.")
    if tuple(tensor.shape) != tuple(program.weights[name]):
        raise CorruptFileError(f"Tensor {name} has shape {tensor.shape}, not {program.weights[name]}.")
    return tensor


@contextmanager
def naming(tensor: WeightTensor) -> Iterator[None]:
    """Whatever refuses the data says which tensor it was.

    Raises:
        CorruptFileError: in place of the refusal.
    """
    try:
        yield
    except (NativeError, ValueError) as error:
        raise CorruptFileError(f"Tensor {tensor.name} ({tensor.quant_type}) cannot be loaded: {error}.") from error


def stored_type(tensor: WeightTensor) -> str:
    """The type that the kernels read; types without a tiled layout go through float32."""
    return tensor.quant_type if tensor.quant_type in GGML_TYPES else "F32"


def stored_bytes(tensor: WeightTensor) -> NDArray[np.uint8]:
    """The values in `stored_type`."""
    if tensor.quant_type in GGML_TYPES:
        return tensor.data
    return np.ascontiguousarray(tensor.dequantise(), np.float32).reshape(-1).view(np.uint8)


def load_tiles(cache: RepackCache, pool: ThreadPool, program: Program, tensors: WeightTensors) -> Tiles | None:
    """Tiles of every matrix out of the cache, or None when it cannot be used.

    Where a file is found, no tensor's data is touched; where one is built, all of it is checked.

    Raises:
        CorruptFileError: as `find_tensor`, or a NaN or infinite scale in a matrix or an embedding table.
    """

    def write(matrix: Matrix, tiles: NDArray[np.uint8]) -> None:
        tensor = tensors[matrix.name]
        with naming(tensor):
            repack(
                pool,
                stored_bytes(tensor),
                tiles,
                quant_type=matrix.quant_type,
                rows=matrix.rows,
                columns=matrix.columns,
            )
        tensor.release()

    return cache.load(find_matrices(program, tensors), write)


def matrices_of(operator: Operator) -> tuple[str, ...]:
    """Weights that an operator multiplies rows with; a stack of experts is one matrix with the rows of all."""
    match operator:
        case Linear() | Head():
            return (operator.weight,)
        case Experts():
            return operator.gate, operator.up, operator.down
        case _:
            return ()


def find_matrices(program: Program, tensors: WeightTensors) -> list[Matrix]:
    """Every matrix once, in the order of use; an embedding table that is no matrix as well comes without tiles.

    Raises:
        CorruptFileError: as `find_tensor`.
    """
    has_tiles = {name for operator in program for name in matrices_of(operator)}
    names = dict.fromkeys(
        name
        for operator in program
        for name in ((operator.weight,) if isinstance(operator, Embed) else matrices_of(operator))
    )
    found = []
    for name in names:
        tensor = find_tensor(program, tensors, name)
        rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1]
        found.append(Matrix(name, stored_type(tensor), rows, columns, has_tiles=name in has_tiles))
    return found
