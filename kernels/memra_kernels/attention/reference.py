"""Attention in torch: the definition. See README.md."""

import torch

from memra_kernels.fixed_order import apply_elementwise, sum_by_halving


def attention(  # noqa: PLR0913  (the operator has this many inputs)
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from tiles of queries to blocks of keys: `softmax(scale * q @ K.T) @ V`.

    B tiles of R queries, n blocks of S keys, H heads, J key-value heads, D elements a head, E in its values.

    Args:
        q: float32 `[B, R, H, D]`; head h reads key-value head `h * J // H`.
        keys: float32 `[B, n, S, J, D]`, the keys that each tile looks at; anything where nobody sees them.
        values: float32 `[B, n, S, J, E]`, finite everywhere.
        visible: bool `[B, R, n, S]`; every query sees at least one key.
        scale: factor on the scores.
        softcap: scores become `softcap * tanh(score / softcap)`; None is off.
        sinks: float32 `[H]`, one more score a head, after scale and cap, that has no value; None is off.

    Returns:
        float32 `[B, R, H, E]`.
    """
    num_tiles, num_rows, num_heads, head_dim = q.shape
    _, num_blocks, block, num_kv, _ = keys.shape
    group = num_heads // num_kv
    # One product per (tile, block, key-value head): the query heads that share a key-value head are rows of it.
    per_kv = q.view(num_tiles, num_rows, num_kv, group, head_dim).permute(0, 2, 3, 1, 4)
    stacked = per_kv.reshape(num_tiles, 1, num_kv, group * num_rows, head_dim)
    stacked = stacked.expand(-1, num_blocks, -1, -1, -1).reshape(-1, group * num_rows, head_dim)
    keys = keys.transpose(2, 3).reshape(-1, block, head_dim)
    scores = torch.bmm(stacked, keys.transpose(1, 2)).mul_(scale)
    if softcap is not None:
        apply_elementwise(torch.tanh, scores.div_(softcap)).mul_(softcap)
    scores = scores.view(num_tiles, num_blocks, num_kv, group, num_rows, block)
    scores.masked_fill_(~visible.permute(0, 2, 1, 3)[:, :, None, None], float("-inf"))
    highest = scores.amax((1, 5), keepdim=True)
    if sinks is not None:
        sinks = sinks.view(num_kv, group, 1, 1)
        highest = torch.maximum(highest, sinks)
    weights = apply_elementwise(torch.exp, scores.sub_(highest))
    value_dim = values.shape[-1]
    values = values.transpose(2, 3).reshape(-1, block, value_dim)
    sums = torch.bmm(weights.view(-1, group * num_rows, block), values).view(*scores.shape[:5], value_dim)
    denominators = _add_blocks(sum_by_halving(weights))
    if sinks is not None:
        denominators += apply_elementwise(torch.exp, (sinks - highest)[:, 0, ..., 0].contiguous())
    total = _add_blocks(sums) / denominators[..., None]
    return total.permute(0, 3, 1, 2, 4).contiguous().view(num_tiles, num_rows, num_heads, value_dim)


def _add_blocks(parts: torch.Tensor) -> torch.Tensor:
    """Sum `[B, n, ...]` over its blocks, first to last."""
    total = parts[:, 0].clone()
    for index in range(1, parts.shape[1]):
        total += parts[:, index]
    return total
