"""Turns a model's program into a native plan: the same operators, fused where neighbours fit one pass.

Trade: the order of native steps and what becomes one of them. Fused are matrices that read the same input, gate and up
with their product, an addition after a matrix, and every chain of row-local operators (norms, residuals, rotation,
storing keys and values, quantising for the matrices that follow). Called once per model by `memra.engine.cpu_executor`.
`cpu_weights` loads what steps read, `cpu_buffers` knows where values lie, `cpu_sequence_steps` makes the steps that are
no rows. Refuses to know sequences, pages in use and threads.
"""

import math
from collections.abc import Sequence

import numpy as np
from memra_kernels.native import MAX_PARTS, CacheLayer, Plan, RowOp

from memra.engine.cpu_buffers import PlanBuffers
from memra.engine.cpu_limits import QUANT_BLOCK
from memra.engine.cpu_row_operators import SIMPLE_OPERATORS, angles_row_op, rope_row_op, simple_row_op
from memra.engine.cpu_sequence_steps import SequenceSteps
from memra.engine.cpu_weights import PlanWeights
from memra.engine.executor import WeightTensors
from memra.engine.repack_file import Tiles
from memra.layers.dataflow import Angles, angles_of, inputs_of, output_of
from memra.layers.operators import (
    Add,
    Attention,
    CausalConv,
    Embed,
    Experts,
    GatedDelta,
    GatedProduct,
    Head,
    HiddenOutput,
    Linear,
    Operator,
    PositionEmbed,
    Rope,
)
from memra.layers.program import Program


class PlanBuilder:
    """Adds one program's steps to a plan; use once."""

    def __init__(self, plan: Plan, program: Program, tensors: WeightTensors, *, tiles: Tiles | None = None) -> None:
        """Keep what is read while building; nothing is loaded yet.

        Args:
            plan: what the steps are added to.
            program: what it will compute.
            tensors: weights by name.
            tiles: all matrices as `matrix_tiles.load_tiles` gives them, or None to repack them here.
        """
        self._plan = plan
        self._program = program
        self._operators = program.operators
        self._weights = PlanWeights(plan, program, tensors, tiles)
        self._buffers = PlanBuffers(plan, program, self._weights)
        self._sequence_steps = SequenceSteps(plan, program, self._weights, self._buffers)
        self._angles: dict[Angles, int] = {}

    def build(self) -> None:
        """Load every weight and add every step.

        Raises:
            CorruptFileError: a tensor is missing, has another shape, or holds a NaN or infinite scale.
        """
        self._add_angles()
        index = 0
        while index < len(self._operators):
            index += self._add_at(index)

    def _add_at(self, index: int) -> int:
        """Add the step that begins with this operator; returns how many operators it took."""
        operator = self._operators[index]
        if isinstance(operator, Linear):
            return self._add_gated(index) or self._add_residual(index) or self._add_linears(index)
        match operator:
            case Embed():
                self._add_embed(index, operator)
            case PositionEmbed():
                self._add_position_embed(index, operator)
            case Rope():
                x, angles = self._buffers.floats[operator.x], self._angles[angles_of(operator)]
                self._plan.row(rope_row_op(operator, x=x, angles=angles))
            case Attention():
                self._sequence_steps.add_attention(index, operator)
            case CausalConv():
                self._sequence_steps.add_conv(index, operator)
            case GatedDelta():
                self._sequence_steps.add_delta(index, operator)
            case Experts():
                self._sequence_steps.add_experts(index, operator)
            case HiddenOutput() | Head():
                self._add_end(operator)
            case _:
                self._add_simple(index, operator)
        return 1

    def _add_end(self, operator: Head | HiddenOutput) -> None:
        if isinstance(operator, HiddenOutput):
            self._plan.hidden(self._buffers.floats[operator.x], width=self._program.buffers[operator.x])
            self._plan.limit(token_ids=self._program.vocab_size)
            return
        weight, x = self._weights.matrix(operator.weight), self._buffers.input(operator.x, operator.weight)
        self._plan.head(x, weight=weight, scale=operator.scale, softcap=operator.softcap or 0.0)

    def _add_gated(self, index: int) -> int:
        """Gate, up and their product as one step, where nobody else reads gate and up."""
        match self._operators[index : index + 3]:
            case (Linear() as first, Linear() as second, GatedProduct() as product):
                by_output = {linear.out: linear for linear in (first, second)}
            case _:
                return 0
        gate, up = by_output.get(product.gate), by_output.get(product.up)
        if gate is None or up is None or gate.x != up.x or gate.bias or up.bias:
            return 0
        rows = self._program.weights[gate.weight][0]
        is_quantised = not self._weights.is_float(gate.weight) and not self._weights.is_float(up.weight)
        only_product = self._buffers.only_reader_is(index + 2, (index, index + 1))
        if not is_quantised or rows % QUANT_BLOCK or not only_product:
            return 0
        x = self._buffers.input(gate.x, gate.weight)
        out = self._buffers.output(index + 2, product.out)
        self._plan.gated(
            x,
            gate=self._weights.matrix(gate.weight),
            up=self._weights.matrix(up.weight),
            out=out,
            activation=product.activation.value,
            limit=product.limit or 0.0,
        )
        return 3

    def _add_residual(self, index: int) -> int:
        """A matrix whose output is only added to another buffer, in place."""
        linear = self._operators[index]
        addition = self._operators[index + 1] if index + 1 < len(self._operators) else None
        if not isinstance(linear, Linear) or not isinstance(addition, Add):
            return 0
        other = addition.y if addition.x == linear.out else addition.x
        is_plain = addition.scale == 1.0
        is_in_place = is_plain and linear.out in (addition.x, addition.y) and addition.out == other != linear.out
        needs = self._buffers.readers(index + 1, other)
        if not is_in_place or needs.quants or self._buffers.reader_indices(index, linear.out) != [index + 1]:
            return 0
        self._plan.linear(
            self._buffers.input(linear.x, linear.weight),
            [self._weights.part(linear, self._buffers.floats[other], add=True)],
        )
        return 2

    def _add_linears(self, index: int) -> int:
        """Matrices side by side that read the same input."""
        first = self._operators[index]
        group: list[Linear] = []
        for operator in self._operators[index : index + MAX_PARTS]:
            if not isinstance(operator, Linear) or not isinstance(first, Linear) or operator.x != first.x:
                break
            if group and (self._weights.is_float(operator.weight) != self._weights.is_float(first.weight)):
                break
            group.append(operator)
            if operator.out == operator.x:
                break
        x = self._buffers.input(group[0].x, group[0].weight)
        outs = [self._buffers.output(index + at, linear.out, floats=True) for at, linear in enumerate(group)]
        self._plan.linear(x, [self._weights.part(linear, out) for linear, out in zip(group, outs, strict=True)])
        for at, linear in enumerate(group):
            self._buffers.quantise_output(index + at, linear.out)
        return len(group)

    def _add_angles(self) -> None:
        """One table of cosines and sines per step for each kind of rotation."""
        for operator in self._operators:
            if not isinstance(operator, Rope) or angles_of(operator) in self._angles:
                continue
            out = self._plan.buffer(operator.rotary_dims)
            self._angles[angles_of(operator)] = out
            factors = self._weights.optional_vector(operator.frequency_factors)
            self._plan.row(angles_row_op(operator, out=out, factors=factors))

    def _add_embed(self, index: int, operator: Embed) -> None:
        quant_type, stored = self._weights.table(operator.weight)
        out = self._buffers.output(index, operator.out, floats=True)
        self._plan.row(
            RowOp(
                kind="embed",
                out=out,
                scale=operator.scale,
                stored_type=quant_type,
                stored=stored,
                stored_row_bytes=stored.nbytes // self._program.weights[operator.weight][0],
            )
        )
        self._buffers.quantise_output(index, operator.out)

    def _add_position_embed(self, index: int, operator: PositionEmbed) -> None:
        table = self._weights.position_table(operator)
        self._plan.limit(positions=table.shape[0] - operator.offset)
        stored = table.reshape(-1).view(np.uint8)
        out = self._buffers.output(index, operator.out, floats=True)
        self._plan.row(
            RowOp(
                kind="position_embed",
                out=out,
                offset=operator.offset,
                stored=stored,
                stored_row_bytes=stored.nbytes // table.shape[0],
            )
        )
        self._buffers.quantise_output(index, operator.out)

    def _add_simple(self, index: int, operator: Operator) -> None:
        """An operator that is one row operation."""
        name = output_of(operator)
        if name is None or not isinstance(operator, SIMPLE_OPERATORS):
            raise TypeError(f"no step for {type(operator).__name__}")
        floats = {x: self._buffers.floats[x] for x in inputs_of(operator)}
        out = self._buffers.output(index, name, floats=True)
        self._plan.row(simple_row_op(operator, floats, out, vectors=self._weights.vector, widths=self._program.buffers))
        self._buffers.quantise_output(index, name)


def state_floats(program: Program) -> int:
    """Float32 values of one sequence's recurrent state."""
    return sum(math.prod(layer.shape) for layer in program.state_layers)


def cache_layers(program: Program) -> Sequence[CacheLayer]:
    """What every attention layer keeps."""
    return [CacheLayer(layer.num_kv_heads, layer.head_dim, layer.value_dim) for layer in program.kv_layers]
