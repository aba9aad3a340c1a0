"""How the torch executor runs the operators that look at other tokens of a row's sequence.

Trade: attention over pages, convolutions and delta rules over states; each sequence by itself, or in tiles that never
mix sequences. Refuses to know the row-local operators.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from memra_kernels.attention.reference import attention
from memra_kernels.causal_conv.reference import causal_conv
from memra_kernels.elementwise.reference import activate
from memra_kernels.gated_delta.reference import decays, gated_delta

from memra.engine.reference_attention import PagedCache, sight_of
from memra.engine.reference_row_operators import Instruction
from memra.engine.reference_states import RecurrentStates
from memra.engine.reference_step import Step
from memra.layers.operators import Attention, CausalConv, GatedDelta, Operator


class SequenceOperators:
    """Runs the operators that read a cache or a state.

    Args:
        weights: by name, on the device.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], *, cache: PagedCache, states: RecurrentStates) -> None:
        self._weights = weights
        self._cache = cache
        self._states = states
        self._handlers: dict[type[Operator], Callable[[Any, Step], None]] = {
            Attention: self._attention,
            CausalConv: self._causal_conv,
            GatedDelta: self._gated_delta,
        }

    def bind(self, operator: Operator) -> Instruction:
        """Return the call that runs an operator."""
        return partial(self._handlers[type(operator)], operator)

    def _attention(self, operator: Attention, step: Step) -> None:
        if operator.k is not None and operator.v is not None:
            keys, values = (step.buffers[name][: step.num_real] for name in (operator.k, operator.v))
            self._cache.append(operator.layer, step.slots, keys, values)
        q = step.buffers[operator.q]
        width = operator.num_heads * operator.value_dim
        sinks = None if operator.sinks is None else self._weights[operator.sinks]
        out = torch.zeros(q.shape[0], width, device=q.device)
        for group in step.groups[sight_of(operator)]:
            keys, values = self._cache.gather(operator.layer, group)
            tiles = q.index_select(0, group.rows)
            tiles = tiles.view(*group.visible.shape[:2], operator.num_heads, operator.head_dim)
            attended = attention(
                tiles, keys, values, group.visible, scale=operator.scale, softcap=operator.softcap, sinks=sinks
            )
            out.index_copy_(0, group.real_rows, attended.view(-1, width).index_select(0, group.real))
        step.buffers[operator.out] = out

    def _causal_conv(self, operator: CausalConv, step: Step) -> None:
        x = step.buffers[operator.x]
        out = torch.zeros_like(x)
        weight = self._weights[operator.weight]
        bias = None if operator.bias is None else self._weights[operator.bias]
        for sequence in step.sequences:
            before = self._states.read(operator.layer, sequence.state_in)
            out[sequence.rows], after = causal_conv(x[sequence.rows], before, weight, bias)
            self._states.write(operator.layer, sequence.state_out, after)
        step.buffers[operator.out] = out if operator.activation is None else activate(out, operator.activation)

    def _gated_delta(self, operator: GatedDelta, step: Step) -> None:
        heads = self._key_heads(operator)
        decay = decays(step.buffers[operator.a], self._weights[operator.a_log], self._weights[operator.dt_bias])
        beta = activate(step.buffers[operator.b], "sigmoid")
        v = step.buffers[operator.v]
        out = torch.zeros_like(v)
        for sequence in step.sequences:
            rows = sequence.rows
            q, k = (
                step.buffers[name][rows].view(-1, operator.num_key_heads, operator.key_dim).index_select(1, heads)
                for name in (operator.q, operator.k)
            )
            values = v[rows].view(-1, operator.num_value_heads, operator.value_dim)
            state = self._states.read(operator.layer, sequence.state_in)
            attended = gated_delta(q, k, values, decay=decay[rows], beta=beta[rows], state=state, scale=operator.scale)
            out[rows] = attended.view(attended.shape[0], -1)
            self._states.write(operator.layer, sequence.state_out, state)
        step.buffers[operator.out] = out

    def _key_heads(self, operator: GatedDelta) -> torch.Tensor:
        """The key head of every value head, int64 `[num_value_heads]`."""
        heads = torch.arange(operator.num_value_heads, device=self._weights[operator.a_log].device)
        if operator.tiled:
            return heads % operator.num_key_heads
        return heads * operator.num_key_heads // operator.num_value_heads
