"""Routing and mixing of experts in torch: the definition. See README.md."""

from dataclasses import dataclass

import torch

from memra_kernels.elementwise.reference import activate
from memra_kernels.fixed_order import apply_elementwise, sum_by_halving

_RANKED_BY = 2
"""Choice values whose sum ranks a group where experts have a correction (DeepSeek-V3, arXiv 2412.19437)."""
_SMALLEST_SUM = 1e-20
"""Keeps the weights' normalisation finite."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The experts of T rows.

    Attributes:
        experts: int64 `[T, num_used]`, in descending order of the choice value; ties go to the lower index.
        weights: float32 `[T, num_used]`.
    """

    experts: torch.Tensor
    weights: torch.Tensor


def route(  # noqa: PLR0913  (the attributes of the operator)
    logits: torch.Tensor,
    correction: torch.Tensor | None,
    *,
    function: str,
    num_used: int,
    normalise: bool,
    scale: float,
    num_groups: int = 1,
    num_groups_used: int = 1,
) -> Choice:
    """Choose experts row by row.

    Args:
        logits: float32 `[T, E]`.
        correction: float32 `[E]`, added for the choice alone, or None.
        function: `softmax`, `sigmoid` or `softmax_of_chosen`.
        num_used: experts of a row.
        normalise: divide the weights by their sum.
        scale: factor on the weights, last.
        num_groups: equal groups in which the experts come.
        num_groups_used: only experts of this many best groups may be chosen.
    """
    scores = logits if function == "softmax_of_chosen" else _score(logits, function)
    values = scores if correction is None else scores + correction
    if num_groups_used < num_groups:
        values = _mask_groups(values, num_groups, num_groups_used, ranked_by=1 if correction is None else _RANKED_BY)
    # A stable descending sort gives ties to the lower index; topk promises nothing.
    experts = torch.sort(values, dim=1, descending=True, stable=True).indices[:, :num_used]
    weights = scores.gather(1, experts)
    if function == "softmax_of_chosen":
        weights = _softmax(weights)
    if normalise:
        weights = weights / sum_by_halving(weights.clone()).clamp(min=_SMALLEST_SUM)[:, None]
    return Choice(experts, weights * scale)


def _score(logits: torch.Tensor, function: str) -> torch.Tensor:
    return activate(logits, "sigmoid") if function == "sigmoid" else _softmax(logits)


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    powers = apply_elementwise(torch.exp, (logits - logits.amax(1, keepdim=True)).contiguous())
    return powers / sum_by_halving(powers.clone())[:, None]


def _mask_groups(values: torch.Tensor, num_groups: int, num_used: int, *, ranked_by: int) -> torch.Tensor:
    groups = values.view(values.shape[0], num_groups, -1)
    ranks = groups.sort(dim=2, descending=True).values[..., :ranked_by].sum(2)
    used = torch.sort(ranks, dim=1, descending=True, stable=True).indices[:, :num_used]
    mask = torch.ones_like(ranks, dtype=torch.bool).scatter_(1, used, value=False)
    return groups.masked_fill(mask[..., None], float("-inf")).view(values.shape)
