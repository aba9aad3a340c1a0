"""Gated product in torch: the definition. See README.md."""

import torch

from memra_kernels.elementwise.reference import activate

_CLAMP = 7.0
"""Bound of gpt-oss's gate and up (`swiglu_limit` of its configuration)."""
_SLOPE = 1.702
"""Of its sigmoid, the usual approximation of GELU."""


def gated_product(gate: torch.Tensor, up: torch.Tensor, name: str, *, limit: float | None = None) -> torch.Tensor:
    """Return `activation(gate) * up`; all float32 `[T, F]`.

    Args:
        gate: left alone.
        up: left alone.
        name: of an activation of `memra_kernels.elementwise`, or `swiglu_clamped`: `g * sigmoid(1.702 g) * (u + 1)`
            with `g = min(gate, 7)` and `u = clip(up, -7, 7)`.
        limit: of `min(activation(gate), limit) * clip(up, -limit, limit)`, or None; not of a clamped activation.
    """
    if name != "swiglu_clamped":
        activated = activate(gate, name)
        return activated.mul_(up) if limit is None else activated.clamp_(max=limit).mul_(up.clamp(-limit, limit))
    gate = gate.clamp(max=_CLAMP)
    return activate(gate * _SLOPE, "sigmoid").mul_(gate).mul_(up.clamp(-_CLAMP, _CLAMP) + 1.0)
