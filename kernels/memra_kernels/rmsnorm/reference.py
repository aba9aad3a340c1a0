"""Root-mean-square norm in torch: the definition. See README.md."""

import torch

from memra_kernels.fixed_order import sum_by_halving


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float, *, group_width: int, scale: float = 1.0
) -> torch.Tensor:
    """Scale every group to a root mean square of one, then by the weight (Zhang and Sennrich, arXiv 1910.07467).

    Args:
        x: float32 `[T, groups * W]`.
        weight: float32 `[W]`, the same for every group; None is all ones.
        eps: added to the mean of squares.
        group_width: W.
        scale: a constant factor, applied after the weight.

    Returns:
        float32 `[T, groups * W]`.
    """
    groups = x.reshape(x.shape[0], -1, group_width)
    mean_of_squares = sum_by_halving(groups * groups) / group_width
    inverse = 1.0 / torch.sqrt(mean_of_squares + eps)
    out = groups * inverse[..., None]
    if weight is not None:
        out *= weight
    if scale != 1.0:
        out *= scale
    return out.view(x.shape)
