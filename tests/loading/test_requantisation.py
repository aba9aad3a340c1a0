import gguf
import gguf.quants
import numpy as np
import pytest

from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from memra.loading.model_path import open_checkpoint
from memra.loading.model_tensor import ModelTensor
from memra.loading.q4_k import quantise_q4_k
from memra.loading.requantisation import WeightQuant, requantised, requantised_tensors
from memra.models.registry import build_program
from tests.loading.model_directory import write_directory

RNG = np.random.default_rng(5)
Q4_K, Q4_0 = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q4_0


def _tensors(*, tied: bool = False, columns: int = 512, kind: str = "F32") -> dict[str, ModelTensor]:
    shapes = {
        "token_embd.weight": (40, columns),
        "blk.0.attn_norm.weight": (columns,),
        "blk.0.attn_q.weight": (48, columns),
        "blk.0.attn_q.bias": (48,),
        "blk.0.ffn_gate_inp.weight": (8, columns),
        "blk.0.ffn_gate_exps.weight": (3, 16, columns),
        "blk.0.ffn_gate_inp_shexp.weight": (1, columns),
    }
    if not tied:
        shapes["output.weight"] = (40, columns)
    return {name: _stored(name, shape, kind) for name, shape in shapes.items()}


def _stored(name: str, shape: tuple[int, ...], kind: str) -> StoredTensor:
    values = RNG.standard_normal(shape).astype(np.float16 if kind == "F16" else np.float32)
    return StoredTensor(name, shape, kind, values.reshape(-1).view(np.uint8))


def test_none_keeps_every_tensor_as_it_is():
    tensors = _tensors()
    assert requantised_tensors(tensors, WeightQuant.NONE) == tensors


@pytest.mark.parametrize("quant", [WeightQuant.Q8_0, WeightQuant.Q4_K])
@pytest.mark.parametrize("tied", [True, False])
def test_matrices_change_and_small_tensors_stay(quant, tied):
    tensors = _tensors(tied=tied)
    found = requantised_tensors(tensors, quant)
    changed = {name: tensor.quant_type for name, tensor in found.items() if tensor is not tensors[name]}
    wanted = quant.value.upper()
    head = "token_embd.weight" if tied else "output.weight"
    assert changed == {"blk.0.attn_q.weight": wanted, "blk.0.ffn_gate_exps.weight": wanted, head: "Q8_0"}
    assert list(found) == list(tensors)


@pytest.mark.parametrize(("columns", "expected"), [(512, "Q4_K"), (288, "Q8_0"), (40, "F32")])
def test_rows_that_no_block_divides_take_the_next_type(columns, expected):
    found = requantised_tensors(_tensors(columns=columns), WeightQuant.Q4_K)
    assert found["blk.0.attn_q.weight"].quant_type == expected


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_q8_0_is_what_the_gguf_package_makes(kind):
    source = _tensors(kind=kind)
    found = requantised_tensors(source, WeightQuant.Q8_0)
    for name in ("blk.0.attn_q.weight", "blk.0.ffn_gate_exps.weight"):
        values = source[name].dequantise()
        expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        assert found[name].data.tobytes() == expected.tobytes()
        assert found[name].shape == values.shape


def test_what_is_quantised_already_stays():
    quantised = StoredTensor("blk.0.attn_q.weight", (4, 32), "Q4_0", np.zeros(72, np.uint8))
    assert requantised_tensors({quantised.name: quantised}, WeightQuant.Q8_0)[quantised.name] is quantised


@pytest.mark.parametrize("quant", [WeightQuant.Q8_0, WeightQuant.Q4_K])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_refused_by_name(quant, value):
    values = np.zeros((2, 256), np.float32)
    values[1, 7] = value
    tensor = StoredTensor("blk.0.attn_q.weight", (2, 256), "F32", values.reshape(-1).view(np.uint8))
    with pytest.raises(CorruptFileError, match=r"attn_q.*not finite"):
        _ = requantised_tensors({tensor.name: tensor}, quant)[tensor.name].data


DISTRIBUTIONS = {
    "normal": lambda: RNG.standard_normal((64, 1024)),
    "heavy tails": lambda: RNG.standard_t(3, (64, 1024)),
    "off centre": lambda: RNG.standard_normal((64, 1024)) * 0.2 + 1,
    "negative": lambda: -RNG.uniform(1, 2, (64, 1024)),
    "small": lambda: RNG.standard_normal((64, 1024)) * 1e-3,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_q4_k_loses_less_than_q4_0(name):
    values = DISTRIBUTIONS[name]().astype(np.float32)
    ours = gguf.quants.dequantize(quantise_q4_k(values), Q4_K)
    theirs = gguf.quants.dequantize(gguf.quants.quantize(values, Q4_0), Q4_0)
    assert ours.shape == values.shape
    error, other = (float(np.square(found - values).mean()) for found in (ours, theirs))
    assert error < 0.85 * other
    assert error < 0.02 * float(values.var()) + 1e-12


def test_q4_k_keeps_what_it_can_say():
    codes = RNG.integers(0, 16, (4, 8, 32))
    codes[..., 0], codes[..., 1] = 0, 15
    scales, minima = RNG.integers(1, 64, (4, 8, 1)), RNG.integers(0, 64, (4, 8, 1))
    scales[:, 0], minima[:, 0] = 63, 63
    values = (0.25 * scales * codes - 0.5 * minima).astype(np.float32).reshape(4, 256)
    found = gguf.quants.dequantize(quantise_q4_k(values), Q4_K)
    assert np.abs(found - values).max() < 0.3  # steps are 0.25 to 15.75
    assert float(np.square(found - values).mean()) < 1e-3 * float(values.var())


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-30, 1e9])
def test_q4_k_of_equal_values_is_finite_and_near(value):
    found = gguf.quants.dequantize(quantise_q4_k(np.full((1, 256), value, np.float32)), Q4_K)
    assert np.isfinite(found).all()
    if 1e-4 < abs(value) < 1e5 or value == 0:
        assert np.allclose(found, value, rtol=2e-3)


def test_a_requantised_directory_builds_the_same_program(tmp_path):
    path = write_directory(tmp_path, "llama", dtype="BF16")
    plain = open_checkpoint(path)
    small = requantised(plain, WeightQuant.Q8_0)
    assert requantised(plain, WeightQuant.NONE) is plain
    assert len({plain.identity, small.identity, requantised(plain, WeightQuant.Q4_K).identity}) == 3
    shapes = {name: tensor.shape for name, tensor in small.tensors.items()}
    assert shapes == {name: tensor.shape for name, tensor in plain.tensors.items()}
    assert small.metadata == plain.metadata
    assert small.vocabulary.tokens == plain.vocabulary.tokens
    build_program(small.architecture, small.metadata, shapes)
