"""The weights of a program in a native plan: vectors, matrices, tables, each loaded once.

Trade: which form of a tensor a step is given, and the words for a tensor that cannot be loaded. Called by the builders
of steps. Refuses to know buffers and the order of steps.
"""

import math

import numpy as np
from memra_kernels.native import FLOAT_TYPES, GGML_TYPES, LinearPart, Plan
from numpy.typing import NDArray

from memra.engine.executor import WeightTensor, WeightTensors
from memra.engine.matrix_tiles import find_tensor, naming, stored_bytes, stored_type
from memra.engine.repack_file import Tiles
from memra.errors import CorruptFileError
from memra.layers.operators import Head, Linear, PositionEmbed
from memra.layers.program import Program


class PlanWeights:
    """Loads a program's tensors into a plan, each when it is first asked for."""

    def __init__(self, plan: Plan, program: Program, tensors: WeightTensors, tiles: Tiles | None) -> None:
        """Keep what is read while building; nothing is loaded yet.

        Args:
            plan: keeps the matrices.
            program: says their shapes.
            tensors: weights by name.
            tiles: all matrices as `matrix_tiles.load_tiles` gives them, or None to repack them here.
        """
        self._plan = plan
        self._program = program
        self._tensors = tensors
        self._tiles = tiles
        self._matrices: dict[str, int] = {}

    def tensor(self, name: str) -> WeightTensor:
        """The tensor of this name.

        Raises:
            CorruptFileError: it is missing, or has another shape than the program asks for.
        """
        return find_tensor(self._program, self._tensors, name)

    def vector(self, name: str, row: int | None = None) -> NDArray[np.float32]:
        """All values of a tensor, or of one row of it, as floats, in one dimension.

        Raises:
            CorruptFileError: as `tensor`, or one is NaN or infinite.
        """
        tensor = self.tensor(name)
        with naming(tensor):
            values = tensor.dequantise()
            values = np.ascontiguousarray(values if row is None else values[row], np.float32).reshape(-1)
            if not np.isfinite(values).all():
                raise ValueError("a NaN or infinite value")
        return values

    def optional_vector(self, name: str | None) -> NDArray[np.float32] | None:
        """As `vector`, for an operator that may have none."""
        return None if name is None else self.vector(name)

    def is_float(self, name: str) -> bool:
        """Whether the kernel of this matrix reads float activations; the others read int8."""
        quant_type = self.tensor(name).quant_type
        return quant_type in FLOAT_TYPES or quant_type not in GGML_TYPES

    def matrix(self, name: str) -> int:
        """The plan's id of a matrix.

        Raises:
            CorruptFileError: as `tensor`, or it holds a NaN or infinite scale.
        """
        if name not in self._matrices:
            self._matrices[name] = self._add_matrix(name)
        return self._matrices[name]

    def _add_matrix(self, name: str) -> int:
        tensor = self.tensor(name)
        quant_type, columns = stored_type(tensor), tensor.shape[-1]
        rows = math.prod(tensor.shape[:-1])  # experts are stacked
        if self._tiles is not None and name in self._tiles:
            return self._plan.tiles(self._tiles[name], quant_type=quant_type, rows=rows, columns=columns)
        with naming(tensor):
            weight = self._plan.weight(stored_bytes(tensor), quant_type=quant_type, rows=rows, columns=columns)
        tensor.release()
        return weight

    def part(self, linear: Linear, out: int, *, add: bool = False) -> LinearPart:
        """One matrix of a linear step that writes the buffer `out`, or adds to it."""
        return LinearPart(self.matrix(linear.weight), out, self.optional_vector(linear.bias), add)

    def table(self, name: str) -> tuple[str, NDArray[np.uint8]]:
        """Type and bytes of an embedding table, whose rows are read where the file has them.

        Raises:
            CorruptFileError: as `matrix`.
        """
        tensor = self.tensor(name)
        quant_type = stored_type(tensor)
        with naming(tensor):
            stored = stored_bytes(tensor)
            if self._tiles is None and not self._is_matrix(name):  # else it is checked with the matrices
                rows, columns = tensor.shape
                self._plan.check(stored, quant_type=quant_type, rows=rows, columns=columns)
        tensor.release()
        return quant_type, stored

    def position_table(self, operator: PositionEmbed) -> NDArray[np.float32]:
        """The rows of positions, one behind the other from the first that a file has.

        Raises:
            CorruptFileError: as `tensor`, or there are fewer rows than the program has positions.
        """
        table = np.ascontiguousarray(self.tensor(operator.weight).dequantise(), np.float32)
        if self._program.context_tokens > table.shape[0] - operator.offset:
            raise CorruptFileError(
                f"Tensor {operator.weight} has no rows for a context of {self._program.context_tokens} tokens."
            )
        return table

    def _is_matrix(self, name: str) -> bool:
        operators = self._program.operators
        return any(isinstance(operator, Linear | Head) and operator.weight == name for operator in operators)
