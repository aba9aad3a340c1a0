"""How the torch executor runs the operators that look at one row at a time.

Trade: binds an operator to its weights once, so that a step is a list of calls. Products with a weight run in tiles
whose heights were probed to give a row the same bits. Refuses to know sequences, pages and states.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from memra_kernels.elementwise.reference import activate, scale_by_position, scale_rows
from memra_kernels.embed.reference import embed
from memra_kernels.experts.reference import route
from memra_kernels.gated_product.reference import gated_product
from memra_kernels.head.reference import head
from memra_kernels.join.reference import join_groups
from memra_kernels.layer_norm.reference import layer_norm
from memra_kernels.linear.reference import linear
from memra_kernels.linear.tiles import RowTiles
from memra_kernels.rmsnorm.reference import rms_norm
from memra_kernels.rope.reference import RopeTable, build_rope_table, rope
from memra_kernels.slice.reference import slice_groups

from memra.engine.reference_step import Step
from memra.layers.dataflow import Angles, angles_of
from memra.layers.operators import (
    Activate,
    Add,
    AddVector,
    Embed,
    Experts,
    GatedProduct,
    Head,
    HiddenOutput,
    Join,
    LayerNorm,
    Linear,
    Operator,
    PositionEmbed,
    RmsNorm,
    Rope,
    RopeStyle,
    Scale,
    ScaleByPosition,
    ScaleRows,
    Slice,
)
from memra.layers.program import Program

Instruction = Callable[[Step], None]


class RowOperators:
    """Runs row-local operators.

    Args:
        weights: by name, on the device.
        tiles: heights at which a row's bits agree, by weight.
        num_positions: positions that a sequence can come to.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, torch.Tensor],
        *,
        tiles: Mapping[str, RowTiles],
        num_positions: int,
        device: torch.device,
    ) -> None:
        self._weights = weights
        self._tiles = tiles
        ropes = {angles_of(operator): operator for operator in program if isinstance(operator, Rope)}
        self._rope_tables = {
            key: self._build_rope_table(operator, num_positions, device) for key, operator in ropes.items()
        }
        self._handlers: dict[type[Operator], Callable[[Any, Step], None]] = {
            Embed: self._embed,
            PositionEmbed: self._position_embed,
            RmsNorm: self._rms_norm,
            LayerNorm: self._layer_norm,
            Linear: self._linear,
            Slice: self._slice,
            Join: self._join,
            Rope: self._rope,
            GatedProduct: self._gated_product,
            Activate: self._activate,
            Add: self._add,
            AddVector: self._add_vector,
            Scale: self._scale,
            ScaleRows: self._scale_rows,
            ScaleByPosition: self._scale_by_position,
            Experts: self._experts,
            Head: self._head,
            HiddenOutput: self._hidden_output,
        }

    def bind(self, operator: Operator) -> Instruction | None:
        """Return the call that runs an operator; None for one that is not row-local."""
        handler = self._handlers.get(type(operator))
        return None if handler is None else partial(handler, operator)

    def _build_rope_table(self, operator: Rope, num_positions: int, device: torch.device) -> RopeTable:
        factors = self._weight(operator.frequency_factors)
        table = build_rope_table(
            num_positions,
            operator.rotary_dims,
            operator.base,
            position_scale=operator.position_scale,
            frequency_factors=None if factors is None else factors[: operator.rotary_dims // 2],
            frequencies=operator.frequencies,
            magnitude=operator.magnitude,
        )
        return RopeTable(table.cosines.to(device), table.sines.to(device))

    def _weight(self, name: str | None) -> torch.Tensor | None:
        return None if name is None else self._weights[name]

    def _embed(self, operator: Embed, step: Step) -> None:
        step.buffers[operator.out] = embed(step.token_ids, self._weights[operator.weight], operator.scale)

    def _position_embed(self, operator: PositionEmbed, step: Step) -> None:
        step.buffers[operator.out] = embed(step.positions + operator.offset, self._weights[operator.weight])

    def _rms_norm(self, operator: RmsNorm, step: Step) -> None:
        step.buffers[operator.out] = rms_norm(
            step.buffers[operator.x],
            self._weight(operator.weight),
            operator.eps,
            group_width=operator.group_width,
            scale=operator.scale,
        )

    def _layer_norm(self, operator: LayerNorm, step: Step) -> None:
        weight, bias = self._weights[operator.weight], self._weight(operator.bias)
        step.buffers[operator.out] = layer_norm(step.buffers[operator.x], weight, bias, operator.eps)

    def _linear(self, operator: Linear, step: Step) -> None:
        tiles = self._tiles[operator.weight].cut(step.num_real)
        weight, bias = self._weights[operator.weight], self._weight(operator.bias)
        step.buffers[operator.out] = linear(step.buffers[operator.x], weight, bias, tiles=tiles)

    def _slice(self, operator: Slice, step: Step) -> None:
        step.buffers[operator.out] = slice_groups(
            step.buffers[operator.x],
            num_groups=operator.num_groups,
            stride=operator.stride,
            offset=operator.offset,
            width=operator.width,
        )

    def _join(self, operator: Join, step: Step) -> None:
        step.buffers[operator.out] = join_groups(
            step.buffers[operator.x],
            step.buffers[operator.y],
            num_groups=operator.num_groups,
            repeats=operator.repeats,
        )

    def _rope(self, operator: Rope, step: Step) -> None:
        key: Angles = angles_of(operator)
        if key not in step.angles:
            table = self._rope_tables[key]
            step.angles[key] = RopeTable(
                *(rows.index_select(0, step.positions) for rows in (table.cosines, table.sines))
            )
        rope(
            step.buffers[operator.x],
            step.angles[key],
            head_dim=operator.head_dim,
            interleaved=operator.style is RopeStyle.INTERLEAVED,
            offset=operator.offset,
        )

    def _gated_product(self, operator: GatedProduct, step: Step) -> None:
        gate, up = step.buffers[operator.gate], step.buffers[operator.up]
        step.buffers[operator.out] = gated_product(gate, up, operator.activation, limit=operator.limit)

    def _activate(self, operator: Activate, step: Step) -> None:
        step.buffers[operator.out] = activate(step.buffers[operator.x], operator.activation)

    def _add(self, operator: Add, step: Step) -> None:
        y = step.buffers[operator.y]
        step.buffers[operator.out] = step.buffers[operator.x] + (y if operator.scale == 1.0 else y * operator.scale)

    def _add_vector(self, operator: AddVector, step: Step) -> None:
        weight = self._weights[operator.weight]
        step.buffers[operator.out] = step.buffers[operator.x] + (
            weight if operator.row is None else weight[operator.row]
        )

    def _scale(self, operator: Scale, step: Step) -> None:
        scaled = step.buffers[operator.x] * operator.factor
        weight = self._weight(operator.weight)
        step.buffers[operator.out] = scaled if weight is None else scaled * weight

    def _scale_rows(self, operator: ScaleRows, step: Step) -> None:
        step.buffers[operator.out] = scale_rows(
            step.buffers[operator.x], step.buffers[operator.gate], num_groups=operator.num_groups
        )

    def _scale_by_position(self, operator: ScaleByPosition, step: Step) -> None:
        step.buffers[operator.out] = scale_by_position(
            step.buffers[operator.x],
            step.positions,
            slope=operator.slope,
            interval=operator.interval,
            offset=operator.offset,
        )

    def _experts(self, operator: Experts, step: Step) -> None:
        """Mix in the order of each row's choice: a row's sum does not depend on the order of the experts' work."""
        x = step.buffers[operator.x][: step.num_real]
        routing = operator.routing
        choice = route(
            step.buffers[operator.router][: step.num_real],
            self._weight(routing.correction),
            function=routing.function,
            num_used=routing.num_used,
            normalise=routing.normalise,
            scale=routing.scale,
            num_groups=routing.num_groups,
            num_groups_used=routing.num_groups_used,
        )
        parts = x.new_empty(step.num_real, routing.num_used, self._weights[operator.down].shape[1])
        for expert in torch.unique(choice.experts).tolist():
            rows, places = (choice.experts == expert).nonzero(as_tuple=True)
            parts[rows, places] = self._run_expert(operator, expert, x, rows, choice.weights[rows, places, None])
        out = torch.zeros(step.token_ids.shape[0], parts.shape[2], device=x.device)
        for place in range(routing.num_used):
            out[: step.num_real] += parts[:, place]
        step.buffers[operator.out] = out

    def _run_expert(
        self, operator: Experts, expert: int, x: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted outputs of one expert for these rows."""
        inputs = x.index_select(0, rows)
        if operator.routing.scales_input:
            inputs = inputs * weights
        gate = self._expert_linear(inputs, operator.gate, operator.gate_bias, expert)
        up = self._expert_linear(inputs, operator.up, operator.up_bias, expert)
        hidden = gated_product(gate, up, operator.activation, limit=operator.limit)
        out = self._expert_linear(hidden, operator.down, operator.down_bias, expert)
        if operator.expert_scale is not None:
            out = out * self._weights[operator.expert_scale][expert]
        return out if operator.routing.scales_input else out * weights

    def _expert_linear(self, x: torch.Tensor, weight: str, bias: str | None, expert: int) -> torch.Tensor:
        tiles = self._tiles[weight].cut(x.shape[0])
        missing = sum(tiles) - x.shape[0]
        padded = torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x
        vector = None if bias is None else self._weights[bias][expert]
        return linear(padded, self._weights[weight][expert], vector, tiles=tiles)[: x.shape[0]]

    def _head(self, operator: Head, step: Step) -> None:
        if not step.num_outputs:
            return
        step.outputs = head(
            step.buffers[operator.x].index_select(0, step.output_rows),
            self._weights[operator.weight],
            scale=operator.scale,
            softcap=operator.softcap,
            tiles=self._tiles[operator.weight].cut(step.num_outputs),
        )

    def _hidden_output(self, operator: HiddenOutput, step: Step) -> None:
        if step.num_outputs:
            step.outputs = step.buffers[operator.x].index_select(0, step.output_rows)
