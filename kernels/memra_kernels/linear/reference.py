"""Linear layer in torch: the definition. See README.md."""

from collections.abc import Iterable

import torch


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, tiles: Iterable[int] | None = None
) -> torch.Tensor:
    """Multiply every row with the weight, tile by tile.

    A matrix library may take another order of summation for another number of rows, so the caller cuts the rows into
    tiles whose heights are known to give a row the same bits (`memra_kernels.linear.tiles`).

    Args:
        x: float32 `[T, K]`, contiguous.
        weight: float32 or bfloat16 `[N, K]`; the rows are rounded to its type.
        bias: float32 `[N]`, added after the sum; None is none.
        tiles: heights that add up to at most T, beyond which rows are zero; None is one tile of all rows.

    Returns:
        float32 `[T, N]`.
    """
    x = x.to(weight.dtype)
    out = torch.empty(x.shape[0], weight.shape[0], dtype=weight.dtype, device=x.device)
    start = 0
    for height in (x.shape[0],) if tiles is None else tiles:
        torch.mm(x[start : start + height], weight.T, out=out[start : start + height])
        start += height
    out[start:] = 0.0
    out = out.float()
    return out if bias is None else out.add_(bias)
