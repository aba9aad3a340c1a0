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


def scale_rows(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return `x[t] * sigmoid(gate[t, 0])`; float32 `[T, W]` and `[T, 1]`."""
    return x * activate(gate[:, :1], "sigmoid")


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": _gelu_tanh,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
