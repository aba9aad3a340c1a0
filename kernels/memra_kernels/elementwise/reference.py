"""Functions of single elements in torch: the definition. See README.md."""

from collections.abc import Callable

import torch
from torch.nn import functional

from memra_kernels.fixed_order import apply_elementwise


def activate(x: torch.Tensor, name: str) -> torch.Tensor:
    """Return `name` of every element, in new memory.

    Args:
        x: float32, any shape.
        name: `silu`, `gelu_tanh`, `gelu`, `sigmoid` or `tanh`.

    Raises:
        KeyError: there is no such function.
    """
    return apply_elementwise(_FUNCTIONS[name], x.contiguous().clone())


def scale_rows(x: torch.Tensor, gate: torch.Tensor, *, num_groups: int = 1) -> torch.Tensor:
    """Return `x[t, g] * sigmoid(gate[t, g])` for G equal groups of x; float32 `[T, W]` and `[T, G]`."""
    factors = activate(gate[:, :num_groups], "sigmoid")
    return (x.reshape(x.shape[0], num_groups, -1) * factors[..., None]).reshape(x.shape)


def scale_by_position(
    x: torch.Tensor, positions: torch.Tensor, *, slope: float, interval: int, offset: int
) -> torch.Tensor:
    """Return `x * (1 + slope * ln(1 + floor((position + offset) / interval)))`; float32 `[T, W]` and integers `[T]`.

    The factors are computed in float64 and rounded once.
    """
    steps = torch.div(positions + offset, interval, rounding_mode="floor").double()
    return x * (1.0 + slope * torch.log(1.0 + steps)).float()[:, None]


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": _gelu_tanh,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
