"""Turns a model's program into a native plan: the same operators, fused where neighbours fit one pass.

Trade: liveness of buffers and the shape of native steps. Fused are matrices that read the same input, gate and up with
their product, an addition after a matrix, and every chain of row-local operators (norms, residuals, rotation, storing
keys and values, quantising for the matrices that follow). Called once per model by `memra.engine.cpu_executor`. Refuses
to know sequences, pages in use and threads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from memra_kernels.native import (
    FLOAT_TYPES,
    GGML_TYPES,
    MAX_PARTS,
    CacheLayer,
    DeltaOp,
    ExpertsOp,
    LinearPart,
    Plan,
    RowOp,
)
from numpy.typing import NDArray

from memra.engine.cpu_limits import QUANT_BLOCK
from memra.engine.cpu_row_operators import SIMPLE_OPERATORS, angles_row_op, rope_row_op, simple_row_op
from memra.engine.executor import WeightTensor, WeightTensors
from memra.engine.matrix_tiles import find_tensor, naming, stored_bytes, stored_type
from memra.engine.repack_file import Tiles
from memra.errors import CorruptFileError
from memra.layers.dataflow import inputs_of, output_of
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


@dataclass(frozen=True, slots=True)
class _Readers:
    """What the readers of one value need."""

    floats: bool
    quants: bool


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
        self._tiles = tiles
        self._plan = plan
        self._program = program
        self._tensors = tensors
        self._operators = program.operators
        self._weights: dict[str, int] = {}
        self._buffers: dict[tuple[str, bool, bool], int] = {}
        self._floats: dict[str, int] = {}
        self._quants: dict[str, int] = {}
        self._angles: dict[tuple[object, ...], int] = {}

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
                x, angles = self._floats[operator.x], self._angles[_angle_key(operator)]
                self._plan.row(rope_row_op(operator, x=x, angles=angles))
            case Attention():
                self._add_attention(index, operator)
            case CausalConv():
                self._add_conv(index, operator)
            case GatedDelta():
                self._add_delta(index, operator)
            case Experts():
                self._add_experts(index, operator)
            case HiddenOutput() | Head():
                self._add_end(operator)
            case _:
                self._add_simple(index, operator)
        return 1

    def _add_end(self, operator: Head | HiddenOutput) -> None:
        if isinstance(operator, HiddenOutput):
            self._plan.hidden(self._floats[operator.x], width=self._program.buffers[operator.x])
            self._plan.limit(token_ids=self._program.vocab_size)
            return
        weight, x = self._weight(operator.weight), self._input(operator.x, operator.weight)
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
        is_quantised = not self._is_float(gate.weight) and not self._is_float(up.weight)
        only_product = all(
            self._reader_indices(index + at, name) == [index + 2] for at, name in self._outputs(index, 2)
        )
        if not is_quantised or rows % QUANT_BLOCK or not only_product:
            return 0
        x = self._input(gate.x, gate.weight)
        out = self._output(index + 2, product.out)
        self._plan.gated(
            x,
            gate=self._weight(gate.weight),
            up=self._weight(up.weight),
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
        needs = self._readers(index + 1, other)
        if not is_in_place or needs.quants or self._reader_indices(index, linear.out) != [index + 1]:
            return 0
        self._plan.linear(self._input(linear.x, linear.weight), [self._part(linear, self._floats[other], add=True)])
        return 2

    def _add_linears(self, index: int) -> int:
        """Matrices side by side that read the same input."""
        first = self._operators[index]
        group: list[Linear] = []
        for operator in self._operators[index : index + MAX_PARTS]:
            if not isinstance(operator, Linear) or not isinstance(first, Linear) or operator.x != first.x:
                break
            if group and (self._is_float(operator.weight) != self._is_float(first.weight)):
                break
            group.append(operator)
            if operator.out == operator.x:
                break
        x = self._input(group[0].x, group[0].weight)
        outs = [self._output(index + at, linear.out, floats=True) for at, linear in enumerate(group)]
        self._plan.linear(x, [self._part(linear, out) for linear, out in zip(group, outs, strict=True)])
        for at, linear in enumerate(group):
            self._quantise_output(index + at, linear.out)
        return len(group)

    def _add_angles(self) -> None:
        """One table of cosines and sines per step for each kind of rotation."""
        for operator in self._operators:
            if not isinstance(operator, Rope) or _angle_key(operator) in self._angles:
                continue
            out = self._plan.buffer(operator.rotary_dims)
            self._angles[_angle_key(operator)] = out
            factors = None if operator.frequency_factors is None else self._vector(operator.frequency_factors)
            self._plan.row(angles_row_op(operator, out=out, factors=factors))

    def _add_embed(self, index: int, operator: Embed) -> None:
        tensor = self._tensor(operator.weight)
        quant_type = stored_type(tensor)
        with naming(tensor):
            stored = stored_bytes(tensor)
            if self._tiles is None and not self._is_matrix(operator.weight):  # else it is checked with the matrices
                rows, columns = tensor.shape
                self._plan.check(stored, quant_type=quant_type, rows=rows, columns=columns)
        tensor.release()
        out = self._output(index, operator.out, floats=True)
        self._plan.row(
            RowOp(
                kind="embed",
                out=out,
                scale=operator.scale,
                stored_type=quant_type,
                stored=stored,
                stored_row_bytes=stored.nbytes // tensor.shape[0],
            )
        )
        self._quantise_output(index, operator.out)

    def _add_position_embed(self, index: int, operator: PositionEmbed) -> None:
        table = np.ascontiguousarray(self._tensor(operator.weight).dequantise(), np.float32)
        num_positions = table.shape[0] - operator.offset
        if self._program.context_tokens > num_positions:
            raise CorruptFileError(
                f"Tensor {operator.weight} has no rows for a context of {self._program.context_tokens} tokens."
            )
        self._plan.limit(positions=num_positions)
        stored = table.reshape(-1).view(np.uint8)
        out = self._output(index, operator.out, floats=True)
        self._plan.row(
            RowOp(
                kind="position_embed",
                out=out,
                offset=operator.offset,
                stored=stored,
                stored_row_bytes=stored.nbytes // table.shape[0],
            )
        )
        self._quantise_output(index, operator.out)

    def _add_simple(self, index: int, operator: Operator) -> None:
        """An operator that is one row operation."""
        name = output_of(operator)
        if name is None or not isinstance(operator, SIMPLE_OPERATORS):
            raise TypeError(f"no step for {type(operator).__name__}")
        floats = {x: self._floats[x] for x in inputs_of(operator)}
        out = self._output(index, name, floats=True)
        self._plan.row(simple_row_op(operator, floats, out, vectors=self._vector, widths=self._program.buffers))
        self._quantise_output(index, name)

    def _add_attention(self, index: int, operator: Attention) -> None:
        if operator.k is not None and operator.v is not None:
            k, v = self._floats[operator.k], self._floats[operator.v]
            self._plan.row(RowOp(kind="store", x=k, y=v, layer=operator.layer))
        q = self._floats[operator.q]
        can_quantise = operator.value_dim % QUANT_BLOCK == 0
        out = self._output(index, operator.out, floats=not can_quantise)
        self._plan.attention(
            q,
            out=out,
            layer=operator.layer,
            num_heads=operator.num_heads,
            scale=operator.scale,
            window=operator.window or 0,
            chunk=operator.chunk or 0,
            causal=operator.causal,
            softcap=operator.softcap or 0.0,
            sinks=None if operator.sinks is None else self._vector(operator.sinks),
        )
        if not can_quantise:
            self._quantise_output(index, operator.out)

    def _add_conv(self, index: int, operator: CausalConv) -> None:
        x = self._floats[operator.x]
        out = self._output(index, operator.out, floats=True)
        self._plan.conv(
            x,
            out=out,
            weight=self._tensor(operator.weight).dequantise(),
            offset=self._state_offset(operator.layer),
            bias=None if operator.bias is None else self._vector(operator.bias),
            activation=None if operator.activation is None else operator.activation.value,
        )
        self._quantise_output(index, operator.out)

    def _add_delta(self, index: int, operator: GatedDelta) -> None:
        inputs = {name: self._floats[getattr(operator, name)] for name in ("q", "k", "v", "a", "b")}
        self._plan.delta(
            DeltaOp(
                **inputs,
                out=self._output(index, operator.out, floats=True),
                a_log=self._vector(operator.a_log),
                dt_bias=self._vector(operator.dt_bias),
                offset=self._state_offset(operator.layer),
                num_key_heads=operator.num_key_heads,
                num_value_heads=operator.num_value_heads,
                key_dim=operator.key_dim,
                value_dim=operator.value_dim,
                scale=operator.scale,
                tiled=operator.tiled,
            )
        )
        self._quantise_output(index, operator.out)

    def _state_offset(self, layer: int) -> int:
        """Place of a recurrent operator's part in a state, in float32 values."""
        return sum(math.prod(state.shape) for state in self._program.state_layers[:layer])

    def _add_experts(self, index: int, operator: Experts) -> None:
        routing, width = operator.routing, self._program.buffers[operator.out]
        reads_floats = self._is_float(operator.down)
        x = self._input(operator.x, operator.gate)
        out = self._output(index, operator.out, floats=True)
        vectors = {
            name: self._optional_vector(getattr(operator, name))
            for name in ("gate_bias", "up_bias", "down_bias", "expert_scale")
        }
        self._plan.experts(
            ExpertsOp(
                x=x,
                logits=self._floats[operator.router],
                out=out,
                hidden=self._slot_buffer("hidden", operator.width, routing.num_used, floats=reads_floats),
                parts=self._slot_buffer("parts", width, routing.num_used, floats=True),
                gate=self._weight(operator.gate),
                up=self._weight(operator.up),
                down=self._weight(operator.down),
                num_experts=routing.num_experts,
                num_used=routing.num_used,
                width=operator.width,
                router=routing.function.value,
                activation=operator.activation.value,
                num_groups=routing.num_groups,
                num_groups_used=routing.num_groups_used,
                normalise=routing.normalise,
                scales_input=routing.scales_input,
                scale=routing.scale,
                limit=operator.limit or 0.0,
                correction=self._optional_vector(routing.correction),
                **vectors,
            )
        )
        self._quantise_output(index, operator.out)

    def _slot_buffer(self, name: str, width: int, num_used: int, *, floats: bool) -> int:
        """A buffer with a row for every choice of every row, shared by the layers; the program does not name it."""
        key = (f"{name} {width} {num_used}", floats, not floats)
        if key not in self._buffers:
            self._buffers[key] = self._plan.buffer(width, values=floats, quants=not floats, copies=num_used)
        return self._buffers[key]

    def _optional_vector(self, name: str | None) -> NDArray[np.float32] | None:
        return None if name is None else self._vector(name)

    def _outputs(self, index: int, count: int) -> list[tuple[int, str]]:
        names = [output_of(operator) for operator in self._operators[index : index + count]]
        return [(at, name) for at, name in enumerate(names) if name is not None]

    def _reader_indices(self, index: int, name: str) -> list[int]:
        """Operators that read the value that operator `index` leaves in `name`."""
        found: list[int] = []
        for at in range(index + 1, len(self._operators)):
            operator = self._operators[at]
            if name in inputs_of(operator):
                found.append(at)
            if output_of(operator) == name and not isinstance(operator, Rope):
                break
        return found

    def _readers(self, index: int, name: str) -> _Readers:
        floats = quants = False
        for at in self._reader_indices(index, name):
            operator = self._operators[at]
            matrix = self._matrix_on(operator, name)
            if matrix is not None and not self._is_float(matrix):
                quants = True
            else:
                floats = True
        return _Readers(floats, quants)

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

    def _output(self, index: int, name: str, *, floats: bool = False) -> int:
        """The buffer for what operator `index` writes to `name`, with the forms that its readers need.

        With `floats` it has floats in any case: the step can write nothing else.
        """
        readers = self._readers(index, name)
        key = (name, readers.floats or floats or not readers.quants, readers.quants)
        if name in self._floats and not readers.quants:  # in-place operators and residuals keep their place
            self._quants.pop(name, None)
            return self._floats[name]
        if key not in self._buffers:
            self._buffers[key] = self._plan.buffer(self._program.buffers[name], values=key[1], quants=key[2])
        buffer = self._buffers[key]
        self._floats.pop(name, None)
        self._quants.pop(name, None)
        if key[1]:
            self._floats[name] = buffer
        if key[2]:
            self._quants[name] = buffer
        return buffer

    def _quantise_output(self, index: int, name: str) -> None:
        if self._readers(index, name).quants:
            self._plan.row(RowOp(kind="quantise", x=self._quants[name]))

    def _input(self, name: str, weight: str) -> int:
        return self._floats[name] if self._is_float(weight) else self._quants[name]

    def _tensor(self, name: str) -> WeightTensor:
        return find_tensor(self._program, self._tensors, name)

    def _vector(self, name: str, row: int | None = None) -> NDArray[np.float32]:
        tensor = self._tensor(name)
        with naming(tensor):
            values = tensor.dequantise()
            values = np.ascontiguousarray(values if row is None else values[row], np.float32).reshape(-1)
            if not np.isfinite(values).all():
                raise ValueError("a NaN or infinite value")
        return values

    def _is_matrix(self, name: str) -> bool:
        return any(isinstance(operator, Linear | Head) and operator.weight == name for operator in self._operators)

    def _is_float(self, name: str) -> bool:
        quant_type = self._tensor(name).quant_type
        return quant_type in FLOAT_TYPES or quant_type not in GGML_TYPES

    def _weight(self, name: str) -> int:
        if name not in self._weights:
            self._weights[name] = self._add_weight(name)
        return self._weights[name]

    def _add_weight(self, name: str) -> int:
        tensor = self._tensor(name)
        quant_type, columns = stored_type(tensor), tensor.shape[-1]
        rows = math.prod(tensor.shape[:-1])  # experts are stacked
        if self._tiles is not None and name in self._tiles:
            return self._plan.tiles(self._tiles[name], quant_type=quant_type, rows=rows, columns=columns)
        with naming(tensor):
            weight = self._plan.weight(stored_bytes(tensor), quant_type=quant_type, rows=rows, columns=columns)
        tensor.release()
        return weight

    def _part(self, linear: Linear, out: int, *, add: bool = False) -> LinearPart:
        bias = None if linear.bias is None else self._vector(linear.bias)
        return LinearPart(self._weight(linear.weight), out, bias, add)


def _angle_key(operator: Rope) -> tuple[object, ...]:
    """What makes two rotations turn by the same angles."""
    return (
        operator.rotary_dims,
        operator.base,
        operator.position_scale,
        operator.frequency_factors,
        operator.frequencies,
        operator.magnitude,
    )


def state_floats(program: Program) -> int:
    """Float32 values of one sequence's recurrent state."""
    return sum(math.prod(layer.shape) for layer in program.state_layers)


def cache_layers(program: Program) -> Sequence[CacheLayer]:
    """What every attention layer keeps."""
    return [CacheLayer(layer.num_kv_heads, layer.head_dim, layer.value_dim) for layer in program.kv_layers]
