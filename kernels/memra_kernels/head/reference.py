"""Head in torch: the definition. See README.md."""

from collections.abc import Iterable

import torch

from memra_kernels.fixed_order import apply_elementwise
from memra_kernels.linear.reference import linear


def head(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    scale: float = 1.0,
    softcap: float | None = None,
    tiles: Iterable[int] | None = None,
) -> torch.Tensor:
    """Compute the logits of rows.

    Args:
        x: float32 `[N, C]`, the rows whose logits are wanted.
        weight: float32 or bfloat16 `[V, C]`.
        scale: factor on the products.
        softcap: bound of the logits (Gemma 2, arXiv 2408.00118); None is none.
        tiles: as for `linear`.

    Returns:
        float32 `[N, V]`.
    """
    logits = linear(x, weight, tiles=tiles)
    if scale != 1.0:
        logits.mul_(scale)
    if softcap is not None:
        apply_elementwise(torch.tanh, logits.div_(softcap)).mul_(softcap)
    return logits
