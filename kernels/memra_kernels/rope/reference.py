"""Rotary position embedding in torch: the definition. See README.md."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines of every position, float32 `[positions, rotary_dims / 2]` each."""

    cosines: torch.Tensor
    sines: torch.Tensor


def build_rope_table(  # noqa: PLR0913  (the operator has this many settings)
    num_positions: int,
    rotary_dims: int,
    base: float,
    *,
    position_scale: float = 1.0,
    frequency_factors: torch.Tensor | None = None,
    frequencies: Sequence[float] | None = None,
    magnitude: float = 1.0,
) -> RopeTable:
    """Compute all angles once, in float64, so that a position's bits never depend on which rows ask for it.

    Args:
        num_positions: positions 0 to num_positions - 1.
        rotary_dims: elements of a head that are rotated; even.
        base: theta of Su et al., arXiv 2104.09864.
        position_scale: factor on the positions (linear scaling: 1 / factor).
        frequency_factors: `[rotary_dims / 2]`, divides the frequencies; None is all ones.
        frequencies: radians per position, `[rotary_dims / 2]`, in place of all of the above.
        magnitude: factor on cosines and sines.
    """
    exponents = torch.arange(0, rotary_dims, 2, dtype=torch.float64) / rotary_dims
    turns = torch.as_tensor(base, dtype=torch.float64) ** -exponents
    if frequency_factors is not None:
        turns = turns / frequency_factors.double().cpu()
    turns = turns * position_scale if frequencies is None else torch.tensor(frequencies, dtype=torch.float64)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * turns
    return RopeTable((angles.cos() * magnitude).float(), (angles.sin() * magnitude).float())


def rope(x: torch.Tensor, angles: RopeTable, *, head_dim: int, interleaved: bool, offset: int = 0) -> None:
    """Rotate pairs of elements of every head, in place.

    Args:
        x: float32 `[T, heads * head_dim]`.
        angles: the table's rows for the rows' positions, `[T, rotary_dims / 2]`.
        head_dim: elements of a head; those before `offset` and from `offset + rotary_dims` on are left alone.
        interleaved: pairs are `(2i, 2i + 1)`; otherwise `(i, i + rotary_dims / 2)`.
        offset: first rotated element of a head.
    """
    num_pairs = angles.cosines.shape[1]
    rotary = x.view(x.shape[0], -1, head_dim)[..., offset : offset + 2 * num_pairs]
    if interleaved:
        first, second = rotary[..., 0::2], rotary[..., 1::2]
    else:
        first, second = rotary[..., :num_pairs], rotary[..., num_pairs:]
    cosines, sines = angles.cosines[:, None], angles.sines[:, None]
    turned = first * cosines - second * sines
    second.copy_(first * sines + second * cosines)
    first.copy_(turned)
