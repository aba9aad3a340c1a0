"""Columns taken out of groups in torch: the definition. See README.md."""

import torch


def slice_groups(x: torch.Tensor, *, num_groups: int, stride: int, offset: int, width: int) -> torch.Tensor:
    """Take `width` columns from `offset` on out of each of `num_groups` groups of `stride` columns.

    Args:
        x: float32 `[T, at least num_groups * stride]`.
        num_groups: groups of a row.
        stride: columns of a group.
        offset: first column taken from each.
        width: columns taken from each.

    Returns:
        float32 `[T, num_groups * width]`, contiguous.
    """
    groups = x[:, : num_groups * stride].reshape(x.shape[0], num_groups, stride)
    return groups[..., offset : offset + width].reshape(x.shape[0], num_groups * width).contiguous()
