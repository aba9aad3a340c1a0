"""The steps in which rows of a sequence meet, and those in which experts do: attention, recurrent layers, experts.

Trade: one method from such an operator to its native step. Called by `memra.engine.cpu_plan`, in the program's order.
Refuses to know fusion, sequences and pages in use.
"""

import math

from memra_kernels.native import DeltaOp, ExpertsOp, Plan, RowOp

from memra.engine.cpu_buffers import PlanBuffers
from memra.engine.cpu_limits import QUANT_BLOCK
from memra.engine.cpu_weights import PlanWeights
from memra.layers.operators import Attention, CausalConv, Experts, GatedDelta
from memra.layers.program import Program


class SequenceSteps:
    """Adds the steps of such operators to a plan; `index` is an operator's place in the program."""

    def __init__(self, plan: Plan, program: Program, weights: PlanWeights, buffers: PlanBuffers) -> None:
        """Keep what the steps are made of.

        Args:
            plan: what they are added to.
            program: says widths and states.
            weights: of the program.
            buffers: of the program, as they are when a step is added.
        """
        self._plan = plan
        self._program = program
        self._weights = weights
        self._buffers = buffers

    def add_attention(self, index: int, operator: Attention) -> None:
        """Store keys and values where the operator has its own, then attend."""
        if operator.k is not None and operator.v is not None:
            k, v = self._buffers.floats[operator.k], self._buffers.floats[operator.v]
            self._plan.row(RowOp(kind="store", x=k, y=v, layer=operator.layer))
        q = self._buffers.floats[operator.q]
        can_quantise = operator.value_dim % QUANT_BLOCK == 0
        out = self._buffers.output(index, operator.out, floats=not can_quantise)
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
            sinks=self._weights.optional_vector(operator.sinks),
        )
        if not can_quantise:
            self._buffers.quantise_output(index, operator.out)

    def add_conv(self, index: int, operator: CausalConv) -> None:
        """Convolve over the last tokens."""
        x = self._buffers.floats[operator.x]
        out = self._buffers.output(index, operator.out, floats=True)
        self._plan.conv(
            x,
            out=out,
            weight=self._weights.tensor(operator.weight).dequantise(),
            offset=self._state_offset(operator.layer),
            bias=self._weights.optional_vector(operator.bias),
            activation=None if operator.activation is None else operator.activation.value,
        )
        self._buffers.quantise_output(index, operator.out)

    def add_delta(self, index: int, operator: GatedDelta) -> None:
        """Run the gated delta rule."""
        inputs = {name: self._buffers.floats[getattr(operator, name)] for name in ("q", "k", "v", "a", "b")}
        self._plan.delta(
            DeltaOp(
                **inputs,
                out=self._buffers.output(index, operator.out, floats=True),
                a_log=self._weights.vector(operator.a_log),
                dt_bias=self._weights.vector(operator.dt_bias),
                offset=self._state_offset(operator.layer),
                num_key_heads=operator.num_key_heads,
                num_value_heads=operator.num_value_heads,
                key_dim=operator.key_dim,
                value_dim=operator.value_dim,
                scale=operator.scale,
                tiled=operator.tiled,
            )
        )
        self._buffers.quantise_output(index, operator.out)

    def add_experts(self, index: int, operator: Experts) -> None:
        """Choose experts, let them work, and add up what they give."""
        routing, width = operator.routing, self._program.buffers[operator.out]
        reads_floats = self._weights.is_float(operator.down)
        x = self._buffers.input(operator.x, operator.gate)
        out = self._buffers.output(index, operator.out, floats=True)
        vectors = {
            name: self._weights.optional_vector(getattr(operator, name))
            for name in ("gate_bias", "up_bias", "down_bias", "expert_scale")
        }
        self._plan.experts(
            ExpertsOp(
                x=x,
                logits=self._buffers.floats[operator.router],
                out=out,
                hidden=self._buffers.slot_buffer("hidden", operator.width, routing.num_used, floats=reads_floats),
                parts=self._buffers.slot_buffer("parts", width, routing.num_used, floats=True),
                gate=self._weights.matrix(operator.gate),
                up=self._weights.matrix(operator.up),
                down=self._weights.matrix(operator.down),
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
                correction=self._weights.optional_vector(routing.correction),
                **vectors,
            )
        )
        self._buffers.quantise_output(index, operator.out)

    def _state_offset(self, layer: int) -> int:
        """Place of a recurrent operator's part in a state, in float32 values."""
        return sum(math.prod(state.shape) for state in self._program.state_layers[:layer])
