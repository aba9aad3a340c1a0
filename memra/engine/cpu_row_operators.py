"""The operators that become one native row operation, in the kernels' terms.

Trade: one function from an operator to a `RowOp`. Refuses to know fusion, which buffers there are, and what follows.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from memra_kernels.native import RowOp
from numpy.typing import NDArray

from memra.errors import UnsupportedModelError
from memra.layers.operators import (
    Activate,
    Add,
    AddVector,
    GatedProduct,
    Join,
    LayerNorm,
    Operator,
    RmsNorm,
    Rope,
    RopeStyle,
    Scale,
    ScaleByPosition,
    ScaleRows,
    Slice,
)

SIMPLE_OPERATORS = (
    *(Activate, Add, AddVector, GatedProduct, Join, LayerNorm, RmsNorm, Scale, ScaleByPosition, ScaleRows, Slice),
)
"""Operators that `simple_row_op` knows."""


class Vectors(Protocol):
    """Reads a weight of one dimension, or one row of a matrix, by name."""

    def __call__(self, name: str, row: int | None = None, /) -> NDArray[np.float32]:
        """The values, float32 `[length]`."""
        ...


def simple_row_op(  # noqa: C901, PLR0911  (one case an operator)
    operator: Operator, floats: Mapping[str, int], out: int, *, vectors: Vectors, widths: Mapping[str, int]
) -> RowOp:
    """Return the operation that computes `operator`.

    Args:
        operator: one of `SIMPLE_OPERATORS`.
        floats: buffers that hold the operator's inputs as floats, by the program's names.
        out: the buffer to write.
        vectors: reads the operator's weights.
        widths: of the program's buffers.

    Raises:
        UnsupportedModelError: a shape that the kernels do not run.
    """

    def optional(name: str | None) -> NDArray[np.float32] | None:
        return None if name is None else vectors(name)

    match operator:
        case RmsNorm(x=x, weight=weight, group_width=width, eps=eps, scale=scale):
            return RowOp(
                kind="norm", x=floats[x], out=out, weight=optional(weight), group_width=width, eps=eps, scale=scale
            )
        case LayerNorm(x=x, weight=weight, bias=bias, eps=eps):
            return RowOp(kind="layer_norm", x=floats[x], out=out, weight=vectors(weight), bias=optional(bias), eps=eps)
        case GatedProduct(gate=gate, up=up, activation=activation, limit=limit):
            return RowOp(
                kind="gate", x=floats[gate], y=floats[up], out=out, activation=activation.value, limit=limit or 0.0
            )
        case Activate(x=x, activation=activation):
            return RowOp(kind="activate", x=floats[x], out=out, activation=activation.value)
        case Add(x=x, y=y, scale=scale):
            return RowOp(kind="add", x=floats[x], y=floats[y], out=out, scale=scale)
        case AddVector(x=x, weight=weight, row=row):
            return RowOp(kind="add_vector", x=floats[x], out=out, weight=vectors(weight, row))
        case Scale(x=x, factor=factor, weight=weight):
            return RowOp(kind="scale", x=floats[x], out=out, scale=factor, weight=optional(weight))
        case ScaleRows(x=x, gate=gate, num_groups=num_groups):
            return RowOp(kind="scale_rows", x=floats[x], y=floats[gate], out=out, num_heads=num_groups)
        case ScaleByPosition(x=x, slope=slope, interval=interval, offset=offset):
            return RowOp(kind="scale_by_position", x=floats[x], out=out, scale=slope, stride=interval, offset=offset)
        case Join(x=x, y=y, num_groups=num_groups, repeats=repeats):
            width = widths[y] if repeats else widths[y] // num_groups
            return RowOp(
                kind="join",
                x=floats[x],
                y=floats[y],
                out=out,
                num_heads=num_groups,
                head_dim=widths[x] // num_groups,
                stride=width,
                offset=0 if repeats else width,
            )
        case Slice(x=x, num_groups=num_groups, stride=stride, offset=offset, width=width):
            return RowOp(
                kind="slice", x=floats[x], out=out, num_heads=num_groups, stride=stride, offset=offset, head_dim=width
            )
        case _:
            raise UnsupportedModelError(f"The CPU engine does not run the operator {type(operator).__name__}.")


def rope_row_op(operator: Rope, *, x: int, angles: int) -> RowOp:
    """Return the rotation of the buffer `x` by the table in the buffer `angles`."""
    return RowOp(
        kind="rope",
        x=x,
        y=angles,
        num_heads=operator.num_heads,
        head_dim=operator.head_dim,
        half_dims=operator.rotary_dims // 2,
        interleaved=operator.style is RopeStyle.INTERLEAVED,
        offset=operator.offset,
    )


def angles_row_op(operator: Rope, *, out: int, factors: NDArray[np.float32] | None) -> RowOp:
    """Return the operation that fills a row's cosines and sines; `factors` divide the frequencies."""
    half = operator.rotary_dims // 2
    if operator.frequencies is not None:
        frequencies = np.array(operator.frequencies, np.float64)
    else:
        frequencies = operator.base ** (-2.0 * np.arange(half, dtype=np.float64) / operator.rotary_dims)
        if factors is not None:
            frequencies = frequencies / factors[:half]
        frequencies = np.asarray(frequencies * operator.position_scale, np.float64)
    return RowOp(kind="angles", out=out, half_dims=half, frequencies=frequencies, scale=operator.magnitude)
