"""Which buffers and weights an operator touches: what a planner asks before it moves operators together.

Knows the operators' fields, and nothing of what they compute.
"""

from collections.abc import Mapping

from memra.layers.operators import (
    Add,
    Attention,
    Embed,
    Experts,
    GatedDelta,
    GatedProduct,
    Head,
    HiddenOutput,
    Join,
    Operator,
    PositionEmbed,
    Rope,
    ScaleRows,
)

Angles = tuple[object, ...]
"""Identifies the angles of a rotation."""

_INPUTS: Mapping[type[Operator], tuple[str, ...]] = {
    Embed: (),
    PositionEmbed: (),
    Attention: ("q", "k", "v"),
    GatedProduct: ("gate", "up"),
    Add: ("x", "y"),
    Join: ("x", "y"),
    ScaleRows: ("x", "gate"),
    Experts: ("x", "router"),
    GatedDelta: ("q", "k", "v", "a", "b"),
}
"""Fields that name an input; of an operator that is not listed it is `x`."""


def inputs_of(operator: Operator) -> tuple[str, ...]:
    """Buffers that an operator reads."""
    names = (getattr(operator, field) for field in _INPUTS.get(type(operator), ("x",)))
    return tuple(name for name in names if name is not None)


def output_of(operator: Operator) -> str | None:
    """The buffer that an operator writes; None where the step's result leaves the program."""
    match operator:
        case Rope():
            return operator.x
        case Head() | HiddenOutput():
            return None
        case _:
            return operator.out


def angles_of(operator: Rope) -> Angles:
    """What makes two rotations turn by the same angles: the key under which their table is kept."""
    return (
        operator.rotary_dims,
        operator.base,
        operator.position_scale,
        operator.frequency_factors,
        operator.frequencies,
        operator.magnitude,
    )
