"""Gated product in torch: the definition. See README.md."""

import torch
from torch.nn import functional

from memra_kernels.fixed_order import apply_elementwise


def silu_product(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up`; all float32 `[T, F]`."""
    return apply_elementwise(functional.silu, gate.clone()).mul_(up)


def gelu_tanh_product(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return `gelu(gate) * up` with the tanh form of gelu; all float32 `[T, F]`."""
    return apply_elementwise(_gelu_tanh, gate.clone()).mul_(up)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")
