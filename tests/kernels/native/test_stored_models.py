"""A model stored wholly in one type: near the same model in float32, as near as int8 activations let it be."""

import gguf
import gguf.quants
import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.errors import UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from tests.kernels.native.quantised_model import make_program, make_tensors, rows_of
from tests.kernels.native.stored_blocks import dequantised, random_stored

_QUANTISED = sorted(set(native.GGML_TYPES) - native.FLOAT_TYPES)
_DEVIATION = 0.05
"""Of the weights: rows of activations keep their size, and no softmax saturates."""


def _stored(quant_type: str, rows: int, columns: int, seed: int) -> NDArray[np.uint8]:
    """What `gguf` makes of normal values where it can quantise, else random blocks of the same deviation."""
    values = (np.random.default_rng(seed).standard_normal((rows, columns)) * _DEVIATION).astype(np.float32)
    try:
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[quant_type])
    except NotImplementedError:
        trial = dequantised(random_stored(quant_type, rows, columns, seed=seed, scale=0.01), quant_type)
        return random_stored(quant_type, rows, columns, seed=seed, scale=0.01 * _DEVIATION / float(trial.std()))


def _tensors(quant_type: str, *, floats: bool) -> dict[str, StoredTensor]:
    def matrix(name: str, _: str, rows: int, columns: int) -> StoredTensor:
        stored = _stored(quant_type, rows, columns, sum(name.encode()))
        if not floats:
            return StoredTensor(name, (rows, columns), quant_type, stored.reshape(-1))
        values = dequantised(stored, quant_type).reshape(-1)
        return StoredTensor(name, (rows, columns), "F32", values.view(np.uint8))

    return make_tensors(matrix)


def _logits(quant_type: str, *, floats: bool) -> NDArray[np.float32]:
    tensors = _tensors(quant_type, floats=floats)
    executor = CpuExecutor(make_program(tensors), tensors, num_threads=2, num_pages=2)
    try:
        return executor.run(rows_of(list(range(40)), [1])).copy()
    finally:
        executor.close()


@pytest.mark.parametrize("quant_type", _QUANTISED)
def test_logits_are_those_of_the_dequantised_model(quant_type: str):
    wanted = _logits(quant_type, floats=True)
    got = _logits(quant_type, floats=False)
    # Int8 activations leave 0.5 to 2 per cent after two layers; one wrong sign or scale in ten leaves far more.
    deviation = float(np.std(got - wanted) / np.std(wanted))
    assert deviation < 0.03, deviation


@pytest.mark.parametrize("quant_type", ["Q8_K", "Q8_1", "F64", "I32"])
def test_a_type_that_holds_no_weights_is_refused_by_name(quant_type: str):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant_type]]
    tensors = make_tensors()
    name = "blk.1.ffn_down.weight"
    rows, columns = tensors[name].shape
    data = np.zeros(rows * columns // elements * size, np.uint8)
    tensors[name] = StoredTensor(name, (rows, columns), quant_type, data)
    with pytest.raises(UnsupportedModelError, match=f"{name}.* is stored as {quant_type}"):
        CpuExecutor(make_program(tensors), tensors, num_threads=1, num_pages=1)


def test_a_type_that_gguf_alone_can_read_goes_through_float32(monkeypatch: pytest.MonkeyPatch):
    wanted = _logits("IQ2_S", floats=True)
    monkeypatch.delitem(native.GGML_TYPES, "IQ2_S")
    assert np.array_equal(_logits("IQ2_S", floats=False), wanted)
