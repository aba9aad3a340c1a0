"""The buffers of a program in a native plan: where a value lies, and whether as floats, as int8, or both.

Trade: who reads what an operator writes, and the forms that they need. Called by the builders of steps. Refuses to know
what operators compute, beyond which of their inputs a matrix multiplies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memra_kernels.native import Plan, RowOp

from memra.engine.cpu_weights import PlanWeights
from memra.layers.dataflow import inputs_of, output_of
from memra.layers.operators import Experts, Head, Linear, Operator, Rope
from memra.layers.program import Program


@dataclass(frozen=True, slots=True)
class Readers:
    """What the readers of one value need."""

    floats: bool
    quants: bool


class PlanBuffers:
    """Follows a program's values while its steps are added in order.

    Attributes:
        floats: buffers that hold values as floats now, by the program's names.
    """

    def __init__(self, plan: Plan, program: Program, weights: PlanWeights) -> None:
        """Begin before the first operator.

        Args:
            plan: keeps the buffers.
            program: says their widths and who reads them.
            weights: say which matrices read floats.
        """
        self._plan = plan
        self._program = program
        self._operators = program.operators
        self._weights = weights
        self._buffers: dict[tuple[str, bool, bool], int] = {}
        self._quants: dict[str, int] = {}
        self.floats: dict[str, int] = {}

    def input(self, name: str, weight: str) -> int:
        """The buffer of a value in the form that the kernel of this matrix reads."""
        return self.floats[name] if self._weights.is_float(weight) else self._quants[name]

    def output(self, index: int, name: str, *, floats: bool = False) -> int:
        """The buffer for what operator `index` writes to `name`, with the forms that its readers need.

        With `floats` it has floats in any case: the step can write nothing else.
        """
        readers = self.readers(index, name)
        key = (name, readers.floats or floats or not readers.quants, readers.quants)
        if name in self.floats and not readers.quants:  # in-place operators and residuals keep their place
            self._quants.pop(name, None)
            return self.floats[name]
        if key not in self._buffers:
            self._buffers[key] = self._plan.buffer(self._program.buffers[name], values=key[1], quants=key[2])
        buffer = self._buffers[key]
        self.floats.pop(name, None)
        self._quants.pop(name, None)
        if key[1]:
            self.floats[name] = buffer
        if key[2]:
            self._quants[name] = buffer
        return buffer

    def quantise_output(self, index: int, name: str) -> None:
        """Add the quantising of what operator `index` has written as floats, where a reader needs int8."""
        if self.readers(index, name).quants:
            self._plan.row(RowOp(kind="quantise", x=self._quants[name]))

    def slot_buffer(self, name: str, width: int, num_used: int, *, floats: bool) -> int:
        """A buffer with a row for every choice of every row, shared by the layers; the program does not name it."""
        key = (f"{name} {width} {num_used}", floats, not floats)
        if key not in self._buffers:
            self._buffers[key] = self._plan.buffer(width, values=floats, quants=not floats, copies=num_used)
        return self._buffers[key]

    def readers(self, index: int, name: str) -> Readers:
        """What those need who read the value that operator `index` leaves in `name`."""
        floats = quants = False
        for at in self.reader_indices(index, name):
            operator = self._operators[at]
            matrix = self._matrix_on(operator, name)
            if matrix is not None and not self._weights.is_float(matrix):
                quants = True
            else:
                floats = True
        return Readers(floats, quants)

    def reader_indices(self, index: int, name: str) -> list[int]:
        """Operators that read the value that operator `index` leaves in `name`."""
        found: list[int] = []
        for at in range(index + 1, len(self._operators)):
            operator = self._operators[at]
            if name in inputs_of(operator):
                found.append(at)
            if output_of(operator) == name and not isinstance(operator, Rope):
                break
        return found

    def only_reader_is(self, reader: int, indices: Sequence[int]) -> bool:
        """Whether what these operators write is read by operator `reader` alone."""
        names = ((index, output_of(self._operators[index])) for index in indices)
        return all(self.reader_indices(index, name) == [reader] for index, name in names if name is not None)

    @staticmethod
    def _matrix_on(operator: Operator, name: str) -> str | None:
        """The weight that an operator multiplies a buffer with, if it does nothing else with it."""
        match operator:
            case Linear() | Head():
                return operator.weight
            case Experts() if name == operator.x and name != operator.router:
                return operator.gate
            case _:
                return None
