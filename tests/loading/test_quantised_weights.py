"""Every stored form of a quantised weight, against its definition written out here element by element."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading import converted_tensor
from memra.loading.model_tensor import ModelTensor
from memra.loading.quantised_weights import assemble_weights
from memra.loading.quantization_config import QuantisationScheme
from memra.loading.safetensors_file import map_safetensors
from tests.loading.model_directory import bf16, raw_safetensors

Parts = dict[str, tuple[str, NDArray[Any]]]
ROWS, COLUMNS = 40, 256
RNG = np.random.default_rng(21)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _assembled(tmp_path: Path, parts: Parts, scheme: QuantisationScheme | None = None) -> dict[str, ModelTensor]:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw_safetensors(parts))
    return assemble_weights(map_safetensors(path).tensors, scheme or QuantisationScheme(), path=path)


def _check(tensor: ModelTensor, expected: NDArray[np.float32], quant_type: str) -> None:
    """Values to the bit, by every way to them."""
    assert (tensor.quant_type, tensor.shape) == (quant_type, expected.shape)
    assert np.array_equal(tensor.dequantise(), expected)
    assert tensor.data.nbytes == tensor.num_bytes
    flat = expected.reshape(-1, expected.shape[-1])
    assert np.array_equal(tensor.rows(3, 21), flat[3:21])
    assert np.array_equal(tensor.rows(8, len(flat)), flat[8:])


def _float8(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    torch = pytest.importorskip("torch")
    values: NDArray[np.float32] = torch.from_numpy(codes.copy()).view(torch.float8_e4m3fn).float().numpy()
    return values


def _float8_codes(*shape: int) -> NDArray[np.uint8]:
    codes = RNG.integers(0, 256, shape, dtype=np.uint8)
    return np.where(codes & 127 == 127, np.uint8(3), codes)


def _random_scales(*shape: int) -> NDArray[np.float32]:
    return RNG.uniform(1e-3, 1e-1, shape).astype(np.float32)


def _bf16_scales(*shape: int) -> NDArray[np.float32]:
    return (_random_scales(*shape).view(np.uint32) & 0xFFFF0000).view(np.float32)


def _field(words: NDArray[np.int32], at: int, num_bits: int) -> NDArray[np.int64]:
    return words.astype(np.int64) >> (num_bits * at) & (2**num_bits - 1)


def test_every_float8_code_has_its_value(tmp_path):
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    tensor = _assembled(tmp_path, {"m.weight": ("F8_E4M3", codes)})["m.weight"]
    assert tensor.quant_type == "BF16"
    assert np.array_equal(tensor.dequantise(), _float8(codes), equal_nan=True)
    assert np.isnan(tensor.dequantise()).sum() == 2


@pytest.mark.parametrize("part", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("shape", [(), (1,), (ROWS,), (ROWS, 1)])
def test_float8_with_one_scale_or_one_for_each_row(tmp_path, shape, part):
    codes, scales = _float8_codes(ROWS, COLUMNS), np.asarray(_random_scales(*shape))
    found = _assembled(tmp_path, {"m.weight": ("F8_E4M3", codes), f"m.{part}": ("F32", scales)})
    expected = _float8(codes) * (scales.reshape(-1, 1) if scales.size > 1 else scales.reshape(-1)[0])
    assert list(found) == ["m.weight"]
    _check(found["m.weight"], expected, "F32")


@pytest.mark.parametrize(("rows", "columns"), [(256, 384), (300, 200), (128, 128)])
def test_float8_with_a_scale_for_each_block_of_128_by_128(tmp_path, rows, columns):
    codes, scales = _float8_codes(rows, columns), _random_scales(-(-rows // 128), -(-columns // 128))
    found = _assembled(tmp_path, {"m.weight": ("F8_E4M3", codes), "m.weight_scale_inv": ("F32", scales)})
    expected = _float8(codes) * np.kron(scales, np.ones((128, 128), np.float32))[:rows, :columns]
    _check(found["m.weight"], expected, "F32")


def test_float8_with_scales_that_are_powers_of_two_is_bfloat16(tmp_path):
    codes = _float8_codes(ROWS, COLUMNS)
    exponents = RNG.integers(100, 140, (1, 2), dtype=np.uint8)
    values = np.ldexp(1.0, exponents.astype(int) - 127).astype(np.float32)
    expected = _float8(codes) * np.repeat(values, 128, axis=1)
    for kind, scales in (("F8_E8M0", exponents), ("F32", values), ("BF16", bf16(values))):
        found = _assembled(tmp_path, {"m.weight": ("F8_E4M3", codes), "m.weight_scale_inv": (kind, scales)})
        _check(found["m.weight"], expected, "BF16")


def test_float8_with_a_power_of_two_that_bfloat16_cannot_bear_is_float32(tmp_path):
    codes, scale = _float8_codes(ROWS, COLUMNS), np.array([2.0**-126], np.float32)
    found = _assembled(tmp_path, {"m.weight": ("F8_E4M3", codes), "m.weight_scale": ("F32", scale)})
    _check(found["m.weight"], _float8(codes) * scale, "F32")


@pytest.mark.parametrize("group", [32, 64, 128, COLUMNS])
@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_packed_symmetric_four_bits_are_q4_0(tmp_path, group, kind):
    words = RNG.integers(-(2**31), 2**31, (ROWS, COLUMNS // 8), dtype=np.int32)
    scales = _bf16_scales(ROWS, COLUMNS // group)
    stored = bf16(scales) if kind == "BF16" else scales.astype(np.float16)
    scales = stored.astype(np.float32) if kind == "F16" else scales
    found = _assembled(tmp_path, _packed(words, (kind, stored)))
    expected = np.empty((ROWS, COLUMNS), np.float32)
    for column in range(COLUMNS):
        signed = _field(words[:, column // 8], column % 8, 4) - 8
        expected[:, column] = signed * scales[:, column // group]
    _check(found["m.weight"], expected, "Q4_0")
    assert list(found) == ["m.weight"]


def _packed(words: NDArray[np.int32], scales: tuple[str, NDArray[Any]], columns: int = COLUMNS) -> Parts:
    return {
        "m.weight_packed": ("I32", words),
        "m.weight_scale": scales,
        "m.weight_shape": ("I64", np.array([len(words), columns])),
    }


@pytest.mark.parametrize("group", [32, 64, 128])
def test_packed_asymmetric_four_bits_are_q5_0(tmp_path, group):
    words = RNG.integers(-(2**31), 2**31, (ROWS, COLUMNS // 8), dtype=np.int32)
    zeros = RNG.integers(-(2**31), 2**31, (ROWS // 8, COLUMNS // group), dtype=np.int32)
    scales = _bf16_scales(ROWS, COLUMNS // group)
    parts = {**_packed(words, ("BF16", bf16(scales))), "m.weight_zero_point": ("I32", zeros)}
    expected = np.empty((ROWS, COLUMNS), np.float32)
    for row in range(ROWS):
        for column in range(COLUMNS):
            zero = _field(zeros[row // 8 : row // 8 + 1, column // group], row % 8, 4)[0]
            code = _field(words[row : row + 1, column // 8], column % 8, 4)[0]
            expected[row, column] = np.float32(code - zero) * scales[row, column // group]
    _check(_assembled(tmp_path, parts)["m.weight"], expected, "Q5_0")


@pytest.mark.parametrize("as_packed", [True, False])
def test_symmetric_eight_bits_are_q8_0(tmp_path, as_packed):
    signed = RNG.integers(-128, 128, (ROWS, COLUMNS), dtype=np.int8)
    scales = _bf16_scales(ROWS, 1)
    if as_packed:
        parts = _packed((signed.astype(np.int16) + 128).astype(np.uint8).view(np.int32), ("BF16", bf16(scales)))
    else:
        parts = {"m.weight": ("I8", signed), "m.weight_scale": ("BF16", bf16(scales))}
    _check(_assembled(tmp_path, parts)["m.weight"], signed * scales, "Q8_0")


def test_asymmetric_eight_bits_are_float32(tmp_path):
    signed, zeros = (RNG.integers(-128, 128, shape, dtype=np.int8) for shape in ((ROWS, COLUMNS), (ROWS, 1)))
    scales = _bf16_scales(ROWS, 1)
    parts: Parts = {
        "m.weight": ("I8", signed),
        "m.weight_scale": ("BF16", bf16(scales)),
        "m.weight_zero_point": ("I8", zeros),
    }
    expected = (signed.astype(np.float32) - zeros.astype(np.float32)) * scales
    _check(_assembled(tmp_path, parts)["m.weight"], expected, "F32")


@pytest.mark.parametrize("scale", [1e-7 + 1e-12, 1e6, 0.1])
def test_scales_that_are_no_float16_make_it_float32(tmp_path, scale):
    words = RNG.integers(-(2**31), 2**31, (ROWS, COLUMNS // 8), dtype=np.int32)
    scales = np.full((ROWS, 2), scale, np.float32)
    codes = np.stack([_field(words, at, 4) for at in range(8)], axis=-1).reshape(ROWS, COLUMNS)
    expected = (codes - 8).astype(np.float32) * np.float32(scale)
    _check(_assembled(tmp_path, _packed(words, ("F32", scales)))["m.weight"], expected, "F32")


def test_columns_that_fill_no_word_or_block_are_float32(tmp_path):
    words = RNG.integers(-(2**31), 2**31, (ROWS, 3), dtype=np.int32)
    scales = _bf16_scales(ROWS, 1)
    codes = np.stack([_field(words, at, 4) for at in range(8)], axis=-1).reshape(ROWS, 24)[:, :20]
    found = _assembled(tmp_path, _packed(words, ("BF16", bf16(scales)), columns=20))
    _check(found["m.weight"], (codes - 8).astype(np.float32) * scales, "F32")


def _awq(zeros: NDArray[np.int64], codes: NDArray[np.int64], scales: NDArray[np.float16]) -> Parts:
    """Packed as AutoAWQ does: nibble i of a word holds column `order[i]` of eight."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def pack(values: NDArray[np.int64]) -> NDArray[np.int32]:
        words = np.zeros((values.shape[0], values.shape[1] // 8), np.int64)
        for at, column in enumerate(order):
            words |= values[:, column::8] << (4 * at)
        return words.astype(np.uint32).view(np.int32)

    return {"m.qweight": ("I32", pack(codes.T)), "m.qzeros": ("I32", pack(zeros.T)), "m.scales": ("F16", scales.T)}


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("centred", [True, False])
def test_awq_is_q5_0_or_q4_0_where_zero_points_allow(tmp_path, group, centred):
    codes = RNG.integers(0, 16, (ROWS, COLUMNS))
    zeros = RNG.integers(0, 16, (ROWS, COLUMNS // group)) if not centred else np.full((ROWS, COLUMNS // group), 8)
    scales = _random_scales(ROWS, COLUMNS // group).astype(np.float16)
    found = _assembled(tmp_path, _awq(zeros, codes, scales), QuantisationScheme(method="awq"))
    wide = np.arange(COLUMNS) // group
    expected = (codes - zeros[:, wide]).astype(np.float32) * scales.astype(np.float32)[:, wide]
    _check(found["m.weight"], expected, "Q4_0" if centred else "Q5_0")


def _gptq(zeros: NDArray[np.int64], codes: NDArray[np.int64], scales: NDArray[np.float16], num_bits: int) -> Parts:
    per_word = 32 // num_bits
    words = np.zeros((COLUMNS // per_word, ROWS), np.int64)
    zero_words = np.zeros((zeros.shape[1], ROWS // per_word), np.int64)
    for at in range(per_word):
        words |= codes.T[at::per_word] << (num_bits * at)
        zero_words |= zeros.T[:, at::per_word] << (num_bits * at)
    return {
        "m.qweight": ("I32", words.astype(np.uint32).view(np.int32)),
        "m.qzeros": ("I32", zero_words.astype(np.uint32).view(np.int32)),
        "m.scales": ("F16", scales.T),
    }


@pytest.mark.parametrize("one_less", [True, False])
@pytest.mark.parametrize(
    ("num_bits", "centred", "quant_type"), [(4, True, "Q4_0"), (4, False, "Q5_0"), (8, True, "Q8_0"), (8, False, "F32")]
)
def test_gptq_of_both_formats(tmp_path, num_bits, centred, quant_type, one_less):
    group, top = 64, 2**num_bits
    codes = RNG.integers(0, top, (ROWS, COLUMNS))
    zeros = (
        RNG.integers(0, top, (ROWS, COLUMNS // group)) if not centred else np.full((ROWS, COLUMNS // group), top // 2)
    )
    scales = _random_scales(ROWS, COLUMNS // group).astype(np.float16)
    wide = np.arange(COLUMNS) // group
    parts = _gptq((zeros - 1) % top if one_less else zeros, codes, scales, num_bits)
    parts |= {"m.g_idx": ("I32", wide.astype(np.int32)), "m.bias": ("F16", np.zeros(ROWS, np.float16))}
    scheme = QuantisationScheme(method="gptq", num_bits=num_bits, zeros_are_one_less=one_less)
    found = _assembled(tmp_path, parts, scheme)
    expected = (codes - zeros[:, wide]).astype(np.float32) * scales.astype(np.float32)[:, wide]
    _check(found["m.weight"], expected, quant_type)
    assert list(found) == ["m.weight"]


def test_gptq_in_the_order_of_activations_is_float32(tmp_path):
    codes, order = RNG.integers(0, 16, (ROWS, COLUMNS)), RNG.permutation(COLUMNS) // 64
    zeros, scales = RNG.integers(0, 16, (ROWS, 4)), _random_scales(ROWS, 4).astype(np.float16)
    parts = {
        **_gptq(zeros, codes, scales, 4),
        "m.g_idx": ("I32", order.astype(np.int32)),
        "m.bias": ("F32", np.ones(ROWS, np.float32)),
    }
    found = _assembled(tmp_path, parts, QuantisationScheme(method="gptq", zeros_are_one_less=False))
    expected = (codes - zeros[:, order]).astype(np.float32) * scales.astype(np.float32)[:, order]
    _check(found["m.weight"], expected, "F32")
    assert set(found) == {"m.weight", "m.bias"}


def _e2m1(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Two values a byte, the low four bits first; the highest of four is the sign."""
    values = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), np.float32)
    for at, code in ((0, packed & 15), (1, packed >> 4)):
        magnitude = np.array(E2M1, np.float32)[code & 7]
        values[..., at::2] = np.where(code & 8, -magnitude, magnitude)
    return values


@pytest.mark.parametrize(("overall", "quant_type"), [(0.0123, "F32"), (2.0**-7, "BF16")])
@pytest.mark.parametrize("divides", [True, False])
def test_nvfp4_of_both_tools(tmp_path, divides, overall, quant_type):
    packed = RNG.integers(0, 256, (ROWS, COLUMNS // 2), dtype=np.uint8)
    scales = _float8_codes(ROWS, COLUMNS // 16) & 127
    values = np.float32(1 / overall if divides else overall)
    names = (
        ("weight_packed", "weight_scale", "weight_global_scale")
        if divides
        else ("weight", "weight_scale", "weight_scale_2")
    )
    arrays = (("U8", packed), ("F8_E4M3", scales), ("F32", np.array(values)))
    parts: Parts = {f"m.{name}": array for name, array in zip(names, arrays, strict=True)}
    parts["m.input_scale"] = ("F32", np.ones(1, np.float32))
    found = _assembled(tmp_path, parts)
    exact = _e2m1(packed).astype(np.float64) * np.repeat(_float8(scales), 16, axis=1)
    expected = (exact / values if divides else exact * values).astype(np.float32)
    _check(found["m.weight"], expected, quant_type)
    assert list(found) == ["m.weight"]


def test_mxfp4_of_gpt_oss_is_mxfp4(tmp_path):
    blocks = RNG.integers(0, 256, (3, 16, 4, 16), dtype=np.uint8)
    exponents = RNG.integers(100, 140, (3, 16, 4), dtype=np.uint8)
    parts: Parts = {"m.gate_up_proj_blocks": ("U8", blocks), "m.gate_up_proj_scales": ("U8", exponents)}
    expected = _e2m1(blocks) * np.ldexp(np.float32(1), exponents.astype(int) - 127)[..., None]
    _check(_assembled(tmp_path, parts)["m.gate_up_proj"], expected.reshape(3, 16, 128).astype(np.float32), "MXFP4")


def test_mxfp4_of_compressed_tensors_is_mxfp4(tmp_path):
    packed = RNG.integers(0, 256, (ROWS, COLUMNS // 2), dtype=np.uint8)
    exponents = RNG.integers(0, 255, (ROWS, COLUMNS // 32), dtype=np.uint8)
    exponents[:, 0] = (0, 1, 2, 254) * (ROWS // 4)
    found = _assembled(tmp_path, {"m.weight_packed": ("U8", packed), "m.weight_scale": ("U8", exponents)})
    with np.errstate(over="ignore"):
        expected = (
            _e2m1(packed).astype(np.float64) * np.ldexp(1.0, np.repeat(exponents, 32, axis=1).astype(int) - 127)
        ).astype(np.float32)
    _check(found["m.weight"], expected, "MXFP4")


def test_an_exponent_that_is_nan_is_refused(tmp_path):
    parts: Parts = {
        "m.weight_packed": ("U8", np.zeros((8, 16), np.uint8)),
        "m.weight_scale": ("U8", np.full((8, 1), 255, np.uint8)),
    }
    with pytest.raises(CorruptFileError, match=r"m\.weight_scale.*NaN"):
        _ = _assembled(tmp_path, parts)["m.weight"].data


@pytest.mark.parametrize("num_values", [1, 64 * 17, 1 << 20])
def test_how_many_rows_are_converted_at_once_changes_nothing(tmp_path, monkeypatch, num_values):
    codes, zeros = RNG.integers(0, 16, (ROWS, COLUMNS)), RNG.integers(0, 16, (ROWS, 2))
    scales = _random_scales(ROWS, 2).astype(np.float16)
    parts = _awq(zeros, codes, scales)
    whole = _assembled(tmp_path, parts, QuantisationScheme(method="awq"))["m.weight"].data.tobytes()
    monkeypatch.setattr(converted_tensor, "CHUNK_VALUES", num_values)
    assert _assembled(tmp_path, parts, QuantisationScheme(method="awq"))["m.weight"].data.tobytes() == whole


def test_bytes_are_shared_while_somebody_holds_them_and_made_anew_later(tmp_path):
    tensor = _assembled(tmp_path, {"m.weight": ("F8_E4M3", _float8_codes(ROWS, COLUMNS))})["m.weight"]
    first = tensor.data
    assert tensor.data is first
    assert not first.flags.writeable
    kept = first.tobytes()
    del first
    tensor.release()
    assert tensor.data.tobytes() == kept
    assert tensor.dequantise().flags.writeable


GOOD: Parts = {
    "m.qweight": ("I32", np.zeros((COLUMNS // 8, ROWS), np.int32)),
    "m.qzeros": ("I32", np.zeros((4, ROWS // 8), np.int32)),
    "m.scales": ("F16", np.ones((4, ROWS), np.float16)),
}
WRONG: dict[str, tuple[Parts, str]] = {
    "no zero points": ({**GOOD, "m.qzeros": ("I32", np.zeros((4, 4), np.int32))}, "m.qzeros"),
    "few scales": ({**GOOD, "m.scales": ("F16", np.ones((4, ROWS - 8), np.float16))}, "m.scales"),
    "groups that divide nothing": (
        {
            **GOOD,
            "m.scales": ("F16", np.ones((3, ROWS), np.float16)),
            "m.qzeros": ("I32", np.zeros((3, ROWS // 8), np.int32)),
        },
        "3 groups",
    ),
    "an order outside": ({**GOOD, "m.g_idx": ("I32", np.full(COLUMNS, 9, np.int32))}, "m.g_idx"),
    "a short order": ({**GOOD, "m.g_idx": ("I32", np.zeros(3, np.int32))}, "m.g_idx"),
    "the weight as well": ({**GOOD, "m.weight": ("F32", np.zeros((2, 2), np.float32))}, "twice"),
    "float8 blocks": (
        {
            "m.weight": ("F8_E4M3", np.zeros((256, 256), np.uint8)),
            "m.weight_scale_inv": ("F32", np.ones((3, 2), np.float32)),
        },
        "weight_scale_inv",
    ),
    "packed without scales": (
        {"m.weight_packed": ("I32", np.zeros((8, 4), np.int32)), "m.weight_shape": ("I64", np.array([8, 32]))},
        "weight_scale",
    ),
    "packed without a shape": (
        {
            "m.weight_packed": ("I32", np.zeros((8, 4), np.int32)),
            "m.weight_scale": ("F16", np.ones((8, 1), np.float16)),
        },
        "weight_shape",
    ),
    "nvfp4 scales": (
        {
            "m.weight": ("U8", np.zeros((8, 16), np.uint8)),
            "m.weight_scale": ("F8_E4M3", np.zeros((8, 3), np.uint8)),
            "m.weight_scale_2": ("F32", np.ones(1, np.float32)),
        },
        "weight_scale",
    ),
    "mxfp4 blocks": (
        {"m.w_blocks": ("U8", np.zeros((2, 3, 16), np.uint8)), "m.w_scales": ("U8", np.zeros((2, 4), np.uint8))},
        "w_blocks",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_parts_that_contradict_each_other_are_named(tmp_path, name):
    parts, named = WRONG[name]
    with pytest.raises(CorruptFileError, match=named):
        _assembled(tmp_path, parts, QuantisationScheme(method="gptq"))


UNKNOWN: dict[str, tuple[Parts, str]] = {
    "integers alone": ({"m.position_ids": ("I64", np.zeros(4, np.int64))}, "position_ids"),
    "neither AWQ nor GPTQ": (GOOD, "neither AWQ nor GPTQ"),
    "six bits": (
        {
            "m.weight_packed": ("I32", np.zeros((8, 5), np.int32)),
            "m.weight_scale": ("F16", np.ones((8, 1), np.float16)),
            "m.weight_shape": ("I64", np.array([8, 25])),
        },
        "neither four nor eight bits",
    ),
    "bytes with float scales": (
        {"m.weight": ("U8", np.zeros((8, 16), np.uint8)), "m.weight_scale": ("F32", np.ones((8, 1), np.float32))},
        "weight_scale",
    ),
    "stacked float8": ({"m.weight": ("F8_E4M3", np.zeros((2, 8, 16), np.uint8))}, "matrices"),
    "an empty matrix": ({"m.weight": ("F8_E4M3", np.zeros((0, 16), np.uint8))}, "matrices"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_weight_of_a_known_form_is_refused_by_name(tmp_path, name):
    parts, named = UNKNOWN[name]
    with pytest.raises(UnsupportedModelError, match=named):
        _assembled(tmp_path, parts)
