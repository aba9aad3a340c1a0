"""Root-mean-square norm in torch: the definition. See README.md."""

import torch

from memra_kernels.fixed_order import sum_by_halving


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale every group to a root mean square of one, then by the weight (Zhang and Sennrich, arXiv 1910.07467).

    Args:
        x: float32 `[T, groups * W]`.
        weight: float32 `[W]`, the same for every group.
        eps: added to the mean of squares.

    Returns:
        float32 `[T, groups * W]`.
    """
    groups = x.reshape(x.shape[0], -1, weight.shape[0])
    mean_of_squares = sum_by_halving(groups * groups) / weight.shape[0]
    inverse = 1.0 / torch.sqrt(mean_of_squares + eps)
    return (groups * inverse[..., None] * weight).view(x.shape)
