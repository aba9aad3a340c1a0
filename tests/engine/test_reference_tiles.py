"""The probes of the torch executor: what they must be able to see."""

import pytest
import torch
from memra_kernels.fixed_order import sum_by_halving

from memra.engine.reference_tiles import _make_cancelling


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
