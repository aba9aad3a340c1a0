"""Which rows of a step may be computed together: the probes of the torch executor.

Trade: asks the matrix library, at load, for every shape of weight and of attention in a program. Refuses to know steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from memra_kernels.attention.reference import attention
from memra_kernels.linear.reference import linear
from memra_kernels.linear.tiles import (
    ATTENTION_PREFERENCES,
    HEAD_PREFERENCES,
    LINEAR_PREFERENCES,
    RowTiles,
    probe_row_tiles,
)

from memra.engine.reference_attention import key_block_tokens
from memra.layers.operators import Attention, Experts, Head, Linear
from memra.layers.program import Program

_MATRIX = 2
"""Dimensions of a weight that is not a stack of experts."""

_SEED = 20240229
"""Any: probes need values without structure, and the same ones at every start."""

_SPREAD_BITS = 4
"""Standard deviation of the binary exponents in a probe's row."""

_DISTINCT_ROWS = 256
"""Rows of a probe's weight that differ; a vocabulary's worth of random numbers would take seconds."""

_BATCHES = ((1, 1), (2, 2), (3, 1), (8, 1))
"""Numbers of tiles, and of key blocks of which all but the first are unseen."""


@torch.inference_mode()
def probe_weight_tiles(program: Program, weights: Mapping[str, torch.Tensor]) -> dict[str, RowTiles]:
    """Find the tile heights of every weight that rows are multiplied with, by name.

    Weights of one shape share one probe, which puts values of its own in their place: a library looks at shapes only.
    """
    tiles: dict[str, RowTiles] = {}
    by_shape: dict[tuple[object, ...], RowTiles] = {}
    for name, preferences in _multiplied_weights(program):
        weight = weights[name] if weights[name].ndim == _MATRIX else weights[name][0]
        key = (weight.shape, preferences)
        if key not in by_shape:
            by_shape[key] = probe_row_tiles(partial(_multiply_copies, *_make_cancelling(weight)), preferences)
        tiles[name] = by_shape[key]
    return tiles


def _multiplied_weights(program: Program) -> Iterator[tuple[str, Sequence[tuple[int, int]]]]:
    """Yield every weight that rows are multiplied with, and the tile heights to try; of experts all have one shape."""
    for operator in program:
        match operator:
            case Head():
                yield operator.weight, HEAD_PREFERENCES
            case Linear():
                yield operator.weight, LINEAR_PREFERENCES
            case Experts():
                for name in (operator.gate, operator.up, operator.down):
                    yield name, LINEAR_PREFERENCES
            case _:
                pass


def _multiply_copies(row: torch.Tensor, weight: torch.Tensor, height: int) -> torch.Tensor:
    return linear(row.repeat(height, 1), weight)


def _make_cancelling(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a row `[1, K]` and a weight like `like`, `[N, K]`, whose products are zero but for rounding.

    Every term has its negative at a random other place, so what is left is the rounding of one order of summation, and
    nothing else. Ordinary products would hide the order where the result is rounded to bfloat16. The terms' sizes are
    spread, as terms of one size add up with hardly any rounding where their factors are bfloat16.
    """
    num_rows, num_columns = like.shape
    order = torch.randperm(num_columns, generator=torch.Generator().manual_seed(_SEED)).to(like.device)
    first, second = order[: num_columns // 2], order[num_columns // 2 :][: num_columns // 2]
    row = torch.zeros(1, num_columns, device=like.device)
    sizes = torch.exp2(_random(like.device, len(first)) * _SPREAD_BITS)
    row[0, first] = _random(like.device, len(first), seed=_SEED + 1) * sizes
    row[0, second] = -row[0, first]
    distinct = _random(like.device, min(num_rows, _DISTINCT_ROWS), num_columns).to(like.dtype)
    distinct[:, second] = distinct[:, first]
    weight = torch.empty_like(like)
    for part in torch.split(weight, _DISTINCT_ROWS):
        part.copy_(distinct[: len(part)])
    return row, weight


@torch.inference_mode()
def probe_attention_tiles(operators: Sequence[Attention], device: torch.device, page_tokens: int) -> RowTiles:
    """Find the tile heights at which all these operators give a query the same bits, in any number of tiles."""
    if not operators:
        return RowTiles(1, 1)
    kinds = {(op.num_heads, op.num_kv_heads, op.head_dim, op.v_head_dim, op.softcap): op for op in operators}
    block = key_block_tokens(page_tokens)

    def attend(height: int) -> torch.Tensor:
        return torch.cat([_attend_equal_rows(operator, height, block, device) for operator in kinds.values()], dim=1)

    return probe_row_tiles(attend, ATTENTION_PREFERENCES)


def _attend_equal_rows(operator: Attention, height: int, block: int, device: torch.device) -> torch.Tensor:
    """Let equal queries attend to equal keys in batches of several sizes; `[rows, H * E]`, equal where bits agree."""
    query = _random(device, operator.num_heads, operator.head_dim, seed=_SEED + 2)  # else it were the first keys
    keys, values = (
        _random(device, 1, 1, block, operator.num_kv_heads, width, seed=_SEED + index)
        for index, width in enumerate((operator.head_dim, operator.v_head_dim or operator.head_dim))
    )
    outs = []
    for num_tiles, num_blocks in _BATCHES:
        visible = torch.zeros(num_tiles, height, num_blocks, block, dtype=torch.bool, device=device)
        visible[:, :, 0] = True
        copies = (num_tiles, num_blocks, 1, 1, 1)
        out = attention(
            query.repeat(num_tiles, height, 1, 1),
            keys.repeat(copies),
            values.repeat(copies),
            visible,
            # Not the operator's own: sharp scores choose one key, and hide the order in which the others are added.
            scale=operator.head_dim**-0.5,
            softcap=operator.softcap,
        )
        outs.append(out.view(num_tiles * height, -1))
    return torch.cat(outs)


def _random(device: torch.device, *shape: int, seed: int = _SEED) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device)
