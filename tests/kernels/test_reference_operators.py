"""Every torch reference against the formula of its README, written out element by element in float64."""

import math

import numpy as np
import pytest
import torch
from memra_kernels.attention.reference import attention
from memra_kernels.embed.reference import embed
from memra_kernels.fixed_order import CHUNK_ELEMENTS, apply_elementwise, sum_by_halving
from memra_kernels.gated_product.reference import gated_product
from memra_kernels.head.reference import head
from memra_kernels.linear.reference import linear
from memra_kernels.rmsnorm.reference import rms_norm
from memra_kernels.rope.reference import RopeTable, build_rope_table, rope
from numpy.typing import NDArray

# A float32 sum of n terms of size one is off by about sqrt(n) * 6e-8; every sum here has under 200 terms.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _assert_close(actual: torch.Tensor, expected: NDArray[np.float64]) -> None:
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.double().numpy(), expected, **TOLERANCE)


def test_embed_looks_up_and_scales():
    weight = _random(7, 5)
    out = embed(torch.tensor([3, 0, 3]), weight, 1.5)
    _assert_close(out, np.array([[weight[t, c].item() * 1.5 for c in range(5)] for t in (3, 0, 3)]))


def test_embed_returns_float32_of_a_bfloat16_table():
    weight = _random(7, 5).bfloat16()
    assert torch.equal(embed(torch.tensor([2]), weight)[0], weight[2].float())


@pytest.mark.parametrize(("width", "groups"), [(1, 3), (7, 1), (64, 2), (96, 1)])
def test_rms_norm_is_its_formula(width: int, groups: int):
    x, weight = _random(3, width * groups), _random(width, seed=1)
    expected = np.zeros(x.shape)
    for t in range(3):
        for g in range(groups):
            part = x[t, g * width : (g + 1) * width].double().tolist()
            root = math.sqrt(sum(v * v for v in part) / width + 1e-3)
            expected[t, g * width : (g + 1) * width] = [
                v / root * w for v, w in zip(part, weight.tolist(), strict=True)
            ]
    _assert_close(rms_norm(x, weight, 1e-3, group_width=weight.shape[0]), expected)


@pytest.mark.parametrize("tiles", [None, [4, 2], [1] * 6])
def test_linear_is_its_formula(tiles: list[int] | None):
    x, weight, bias = _random(6, 33), _random(5, 33, seed=1), _random(5, seed=2)
    expected = [[math.fsum((x[t] * weight[n]).tolist()) + bias[n].item() for n in range(5)] for t in range(6)]
    _assert_close(linear(x, weight, bias, tiles=tiles), np.array(expected))


def test_rows_beyond_the_tiles_are_zero():
    x, weight, bias = _random(6, 33), _random(5, 33, seed=1), _random(5, seed=2)
    out = linear(x, weight, tiles=[2, 2])
    assert torch.equal(out[:4], linear(x[:4].clone(), weight, tiles=[2, 2]))
    assert not out[4:].any()
    assert torch.equal(linear(x, weight, bias, tiles=[2, 2])[4:], bias.repeat(2, 1))


def test_linear_rounds_to_a_bfloat16_weight():
    x, weight = _random(2, 16), _random(3, 16, seed=1).bfloat16()
    out = linear(x, weight)
    assert out.dtype == torch.float32
    assert torch.equal(out, out.bfloat16().float())
    # bfloat16 keeps 8 bits: half a unit in the last place of a sum near 8 is 2^-6.
    np.testing.assert_allclose(out.numpy(), (x.bfloat16().float() @ weight.float().T).numpy(), rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("rotary_dims", [8, 6])
def test_rope_turns_every_pair_by_its_angle(interleaved: bool, rotary_dims: int):  # noqa: FBT001
    num_pairs = rotary_dims // 2
    factors = torch.linspace(1.0, 3.0, num_pairs)
    table = build_rope_table(50, rotary_dims, 100.0, position_scale=0.5, frequency_factors=factors)
    positions = [0, 1, 17, 49]
    x = _random(4, 2 * 8)
    expected = x.double().numpy().copy()
    for row, position in enumerate(positions):
        for h in range(2):
            for i in range(num_pairs):
                angle = position * 0.5 * 100.0 ** (-2 * i / rotary_dims) / factors[i].item()
                pair = (2 * i, 2 * i + 1) if interleaved else (i, i + num_pairs)
                a, b = (h * 8 + element for element in pair)
                u, v = x[row, a].item(), x[row, b].item()
                expected[row, a] = u * math.cos(angle) - v * math.sin(angle)
                expected[row, b] = u * math.sin(angle) + v * math.cos(angle)
    rope(x, RopeTable(table.cosines[positions], table.sines[positions]), head_dim=8, interleaved=interleaved)
    _assert_close(x, expected)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("sinks", [None, [0.5, -1.0, 3.0, 0.0]])
@pytest.mark.parametrize(("num_kv", "value_dim"), [(1, 6), (2, 4), (4, 6)])
def test_attention_is_its_formula(softcap: float | None, sinks: list[float] | None, num_kv: int, value_dim: int):
    num_tiles, num_rows, num_heads, num_blocks, block, dim = 2, 3, 4, 2, 5, 6
    q = _random(num_tiles, num_rows, num_heads, dim)
    keys = _random(num_tiles, num_blocks, block, num_kv, dim, seed=1)
    values = _random(num_tiles, num_blocks, block, num_kv, value_dim, seed=2)
    visible = torch.rand(num_tiles, num_rows, num_blocks, block, generator=torch.Generator().manual_seed(3)) < 0.5
    visible[:, :, 0, 0] = True
    visible[0, 0, 1] = False
    expected = np.zeros((num_tiles, num_rows, num_heads, value_dim))
    for b in range(num_tiles):
        for r in range(num_rows):
            seen = visible[b, r].nonzero().tolist()
            for h in range(num_heads):
                j = h * num_kv // num_heads
                scores = [0.3 * math.fsum((q[b, r, h] * keys[b, n, s, j]).tolist()) for n, s in seen]
                if softcap is not None:
                    scores = [softcap * math.tanh(score / softcap) for score in scores]
                weights = np.exp(np.array(scores) - max(scores))
                rows = np.array([values[b, n, s, j].double().tolist() for n, s in seen])
                sink = 0.0 if sinks is None else math.exp(sinks[h] - max(scores))
                expected[b, r, h] = weights @ rows / (weights.sum() + sink)
    given = None if sinks is None else torch.tensor(sinks)
    _assert_close(attention(q, keys, values, visible, scale=0.3, softcap=softcap, sinks=given), expected)


def test_a_sink_above_all_scores_leaves_almost_nothing():
    q, keys, values = _random(1, 2, 4, 8), _random(1, 1, 64, 2, 8, seed=1), _random(1, 1, 64, 2, 8, seed=2)
    visible = torch.ones(1, 2, 1, 64, dtype=torch.bool)
    out = attention(q, keys, values, visible, scale=1.0, sinks=torch.full((4,), 200.0))
    assert torch.isfinite(out).all()
    assert out.abs().max() < 1e-30


def test_attention_is_not_changed_by_a_block_that_nobody_sees():
    q, keys, values = _random(1, 2, 4, 8), _random(1, 2, 64, 2, 8, seed=1), _random(1, 2, 64, 2, 8, seed=2)
    visible = torch.zeros(1, 2, 2, 64, dtype=torch.bool)
    visible[:, :, 0, :40] = True
    keys[:, 1] = float("nan")
    short = attention(q, keys[:, :1], values[:, :1], visible[:, :, :1], scale=1.0)
    assert torch.equal(attention(q, keys, values, visible, scale=1.0), short)


def test_gated_products_are_their_formulas():
    gate, up = _random(3, 37) * 4, _random(3, 37, seed=1)
    silu = [g / (1 + math.exp(-g)) * u for g, u in zip(gate.flatten().tolist(), up.flatten().tolist(), strict=True)]
    gelu = [
        0.5 * g * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) * u
        for g, u in zip(gate.flatten().tolist(), up.flatten().tolist(), strict=True)
    ]
    _assert_close(gated_product(gate, up, "silu"), np.array(silu).reshape(3, 37))
    _assert_close(gated_product(gate, up, "gelu_tanh"), np.array(gelu).reshape(3, 37))


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_head_scales_and_caps(softcap: float | None):
    x, weight = _random(3, 16), _random(11, 16, seed=1)
    z = 0.5 * np.array([[math.fsum((x[n] * weight[v]).tolist()) for v in range(11)] for n in range(3)])
    _assert_close(head(x, weight, scale=0.5, softcap=softcap), z if softcap is None else softcap * np.tanh(z / softcap))


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 96, 255, 256, 576, 1000])
def test_sum_by_halving_sums_in_its_stated_order(length: int):
    terms = _random(4, length)
    expected = terms.clone()
    half = 1 << (length.bit_length() - 1)
    for i in range(length - half):
        expected[:, i] += expected[:, half + i]
    while half > 1:
        half //= 2
        for i in range(half):
            expected[:, i] += expected[:, half + i]
    assert torch.equal(sum_by_halving(terms.clone()), expected[:, 0])
    np.testing.assert_allclose(expected[:, 0], terms.double().sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.nn.functional.silu])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_elementwise_bits_do_not_depend_on_place_or_length(function, dtype: torch.dtype):
    x = _random(2 * CHUNK_ELEMENTS + 77).to(dtype)
    whole = apply_elementwise(function, x.clone())
    for start, length in ((0, 1), (3, 17), (5, 64), (1, 1000), (7, CHUNK_ELEMENTS + 5)):
        part = apply_elementwise(function, x[start : start + length].clone())
        assert torch.equal(part, whole[start : start + length])
