"""The gated delta rule in torch: the definition. See README.md."""

import torch
from torch.nn import functional

from memra_kernels.fixed_order import apply_elementwise, sum_by_halving


def decays(a: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor) -> torch.Tensor:
    """Return `exp(a_log * softplus(a + dt_bias))`, float32 `[T, H]`; `a_log` is negative, `[H]`."""
    softplus = apply_elementwise(functional.softplus, a + dt_bias)
    return apply_elementwise(torch.exp, softplus.mul_(a_log))


def gated_delta(  # noqa: PLR0913  (the operator has this many inputs)
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Run the recurrence of Yang et al. (arXiv 2412.06464) over the consecutive tokens of one sequence.

    Args:
        q: float32 `[T, H, K]`, already repeated for the value heads.
        k: as `q`.
        v: float32 `[T, H, V]`.
        decay: float32 `[T, H]`.
        beta: float32 `[T, H]`.
        state: float32 `[H, V, K]`; overwritten with the state after the last token.
        scale: factor on the outputs.

    Returns:
        float32 `[T, H, V]`.
    """
    out = torch.empty_like(v)
    for token in range(q.shape[0]):
        state *= decay[token, :, None, None]
        key = k[token, :, None, :]
        error = (v[token] - sum_by_halving(state * key)) * beta[token, :, None]
        state += error[..., None] * key
        out[token] = sum_by_halving(state * q[token, :, None, :]) * scale
    return out
