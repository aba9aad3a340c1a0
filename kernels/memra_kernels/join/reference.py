"""Groups put side by side in torch: the definition. See README.md."""

import torch


def join_groups(x: torch.Tensor, y: torch.Tensor, *, num_groups: int, repeats: bool) -> torch.Tensor:
    """Put each group of x and of y side by side.

    Args:
        x: float32 `[T, num_groups * A]`.
        y: float32 `[T, num_groups * B]`, or `[T, B]` where it `repeats`.
        num_groups: groups of a row.
        repeats: y is one group that follows every group of x.

    Returns:
        float32 `[T, num_groups * (A + B)]`, contiguous.
    """
    left = x.reshape(x.shape[0], num_groups, -1)
    right = y.reshape(y.shape[0], 1 if repeats else num_groups, -1).expand(-1, num_groups, -1)
    return torch.cat((left, right), dim=2).reshape(x.shape[0], -1)
