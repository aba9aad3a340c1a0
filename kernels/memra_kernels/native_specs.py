"""Operations as the C interface takes them: one function from a dataclass to its structure.

Trade: which field is which, names to numbers, arrays to addresses. Called by `memra_kernels.native_plan`. Refuses to
know what an operation computes. The engine copies what it keeps, but for `stored`, which the plan keeps alive.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from memra_kernels.native_library import DeltaSpec, ExpertsSpec, LinearSpec, RowSpec
from memra_kernels.native_operations import ACTIVATIONS, GGML_TYPES, DeltaOp, ExpertsOp, LinearPart, RowOp

_ROW_KINDS = {"embed": 0, "norm": 1, "add": 2, "quantise": 3, "angles": 4, "rope": 5, "store": 6, "gate": 7}
_ROW_KINDS |= {"position_embed": 8, "layer_norm": 9, "slice": 10, "activate": 11, "add_vector": 12, "scale": 13}
_ROW_KINDS |= {"scale_rows": 14, "join": 15, "scale_by_position": 16}
_ROUTERS = {"softmax": 0, "sigmoid": 1, "softmax_of_chosen": 2}


class Kept:
    """Addresses of arrays for one call; whatever had to be copied for it lives as long as this object."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.generic]] = []

    def address(self, values: NDArray[np.generic] | None, dtype: DTypeLike = np.float32) -> int | None:
        """Where the values lie one after the other in this type; None for no array."""
        if values is None:
            return None
        self._arrays.append(np.ascontiguousarray(values, dtype))
        return address_of(self._arrays[-1])


def address_of(array: NDArray[np.generic] | None) -> int | None:
    """Where an array lies that outlives the call; None for no array."""
    return None if array is None else array.ctypes.data


def row_spec(op: RowOp, kept: Kept) -> RowSpec:
    """The structure of a row-local operation."""
    return RowSpec(
        kind=_ROW_KINDS[op.kind],
        x=op.x,
        y=op.y,
        out=op.out,
        weight_length=0 if op.weight is None else op.weight.size,
        group_width=op.group_width,
        num_heads=op.num_heads,
        head_dim=op.head_dim,
        half_dims=op.half_dims,
        interleaved=op.interleaved,
        activation=ACTIVATIONS[op.activation],
        layer=op.layer,
        stored_type=GGML_TYPES[op.stored_type],
        starts_step=op.starts_step,
        offset=op.offset,
        stride=op.stride,
        bias_length=0 if op.bias is None else op.bias.size,
        scale=op.scale,
        eps=op.eps,
        limit=op.limit,
        weight=kept.address(op.weight),
        bias=kept.address(op.bias),
        frequencies=kept.address(op.frequencies, np.float64),
        stored=address_of(op.stored),
        stored_row_bytes=op.stored_row_bytes,
    )


def linear_spec(x: int, parts: Sequence[LinearPart], kept: Kept) -> LinearSpec:
    """The structure of a step of matrices that read the same `x`."""
    spec = LinearSpec(x=x, num_parts=len(parts))
    for index, part in enumerate(parts):
        spec.weight[index] = part.weight
        spec.out[index] = part.out
        spec.add[index] = part.add
        spec.bias[index] = kept.address(part.bias)
    return spec


def delta_spec(op: DeltaOp, kept: Kept) -> DeltaSpec:
    """The structure of a gated delta rule."""
    return DeltaSpec(
        **{name: getattr(op, name) for name in ("q", "k", "v", "a", "b", "out", "key_dim", "value_dim")},
        num_key_heads=op.num_key_heads,
        num_value_heads=op.num_value_heads,
        tiled=op.tiled,
        scale=op.scale,
        a_log=kept.address(op.a_log),
        dt_bias=kept.address(op.dt_bias),
        state_offset=op.offset,
    )


def experts_spec(op: ExpertsOp, kept: Kept) -> ExpertsSpec:
    """The structure of a mixture of experts."""
    names = ("gate_bias", "up_bias", "down_bias", "correction", "expert_scale")
    plain = ("x", "logits", "out", "hidden", "parts", "gate", "up", "down", "num_experts", "width")
    return ExpertsSpec(
        **{name: getattr(op, name) for name in (*plain, "num_groups", "num_groups_used")},
        used=op.num_used,
        router=_ROUTERS[op.router],
        normalise=op.normalise,
        scales_input=op.scales_input,
        activation=ACTIVATIONS[op.activation],
        weight_scale=op.scale,
        limit=op.limit,
        **{name: kept.address(getattr(op, name)) for name in names},
    )
