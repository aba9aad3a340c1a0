"""Layer norm in torch: the definition. See README.md."""

import torch

from memra_kernels.fixed_order import sum_by_halving


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Centre every row and scale it to a variance of one, then by the weight (Ba et al., arXiv 1607.06450).

    Args:
        x: float32 `[T, W]`.
        weight: float32 `[W]`.
        bias: float32 `[W]`, or None.
        eps: added to the variance.

    Returns:
        float32 `[T, W]`.
    """
    width = x.shape[1]
    centred = x - (sum_by_halving(x.clone()) / width)[:, None]
    inverse = 1.0 / torch.sqrt(sum_by_halving(centred * centred) / width + eps)
    out = centred * inverse[:, None] * weight
    return out if bias is None else out.add_(bias)
