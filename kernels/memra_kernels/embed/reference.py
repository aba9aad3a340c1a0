"""Token embedding in torch: the definition. See README.md."""

import torch


def embed(token_ids: torch.Tensor, weight: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Look up the rows of the tokens.

    Args:
        token_ids: int64 `[T]`, each in `[0, V)`.
        weight: float32 or bfloat16 `[V, C]`.
        scale: factor on every element, applied in float32.

    Returns:
        float32 `[T, C]`.
    """
    rows = weight.index_select(0, token_ids).float()
    return rows if scale == 1.0 else rows * scale
