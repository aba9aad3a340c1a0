"""The probes of the torch executor: what they must be able to see."""

import pytest
import torch
from memra_kernels.attention.reference import attention
from memra_kernels.fixed_order import sum_by_halving

from memra.engine.reference_tiles import _make_cancelling, probe_attention_tiles
from memra.layers.operators import Attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "num_columns"), [(192, 576), (300, 897)])
def test_cancelling_terms_show_the_order_of_a_sum_through_any_rounding(
    num_rows: int, num_columns: int, dtype: torch.dtype
):
    row, weight = _make_cancelling(torch.empty(num_rows, num_columns, dtype=dtype))
    assert weight.shape == (num_rows, num_columns)
    assert weight.dtype == dtype
    terms = row.to(dtype).float() * weight.float()
    assert terms.double().sum(1).abs().max() < 1e-9
    one, other = sum_by_halving(terms.clone()).to(dtype), sum_by_halving(terms.roll(7, 1)).to(dtype)
    # Of ordinary terms, sums rounded to bfloat16 agree in all but one of some ten thousand places.
    assert (one != other).float().mean() > 0.2


@pytest.mark.parametrize("scale", [1.0, 512**-0.5])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(8, 1, 256), (8, 1, 512), (4, 2, 64)])
def test_a_query_gets_the_same_bits_at_both_heights_of_a_tile_however_sharp_the_model_is(
    num_heads: int, num_kv_heads: int, head_dim: int, scale: float
):
    operator = Attention("q", "k", "v", "out", 0, num_heads, num_kv_heads, head_dim, scale)
    tiles = probe_attention_tiles([operator], torch.device("cpu"), 64)
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(1, 1, 256, num_kv_heads, head_dim, generator=generator) for _ in range(2))
    queries = torch.randn(1, tiles.large, num_heads, head_dim, generator=generator)
    visible = torch.ones(1, tiles.large, 1, 256, dtype=torch.bool)
    tall = attention(queries, keys, values, visible, scale=head_dim**-0.5)
    small = slice(0, tiles.small)
    low = attention(queries[:, small], keys, values, visible[:, small], scale=head_dim**-0.5)
    assert torch.equal(low, tall[:, small])
