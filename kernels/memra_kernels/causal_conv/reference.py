"""Causal depthwise convolution in torch: the definition. See README.md."""

import torch


def causal_conv(
    x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Convolve the consecutive tokens of one sequence, going on from its last inputs.

    Args:
        x: float32 `[T, C]`.
        state: float32 `[K - 1, C]`, the inputs before the first row, oldest first; left alone.
        weight: float32 `[C, K]`.
        bias: float32 `[C]`, added last, or None.

    Returns:
        float32 `[T, C]`, products added from the oldest token to the newest, and the next state `[K - 1, C]`.
    """
    num_rows, kernel = x.shape[0], weight.shape[1]
    inputs = torch.cat([state, x])
    out = inputs[:num_rows] * weight[:, 0]
    for tap in range(1, kernel):
        out += inputs[tap : tap + num_rows] * weight[:, tap]
    return out if bias is None else out.add_(bias), inputs[num_rows:].clone()
