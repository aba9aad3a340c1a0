"""Experts' gate and up matrices in one tensor of a file."""

from pathlib import Path

import gguf
import gguf.quants
import numpy as np

from memra.loading.gguf_file import open_gguf

NUM_EXPERTS, WIDTH, COLUMNS = 3, 4, 64


def _write(path: Path, values: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_tensor("blk.0.ffn_gate_up_exps.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("blk.0.ffn_down_exps.weight", np.zeros((NUM_EXPERTS, COLUMNS, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_fused_tensor_is_shown_as_gate_and_up(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=(NUM_EXPERTS, 2 * WIDTH, COLUMNS)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    _write(tmp_path / "model.gguf", values, kind)
    tensors = open_gguf(tmp_path / "model.gguf").tensors
    assert sorted(tensors) == [f"blk.0.ffn_{part}_exps.weight" for part in ("down", "gate", "up")]
    stored = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    for part, rows in (("gate", slice(0, WIDTH)), ("up", slice(WIDTH, None))):
        tensor = tensors[f"blk.0.ffn_{part}_exps.weight"]
        assert (tuple(tensor.shape), tensor.quant_type) == ((NUM_EXPERTS, WIDTH, COLUMNS), "Q8_0")
        np.testing.assert_array_equal(tensor.dequantise(), stored[:, rows])


def test_a_fused_tensor_of_an_odd_height_stays_as_it_is(tmp_path: Path):
    _write(tmp_path / "model.gguf", np.ones((NUM_EXPERTS, 5, COLUMNS), np.float32), gguf.GGMLQuantizationType.F32)
    assert "blk.0.ffn_gate_up_exps.weight" in open_gguf(tmp_path / "model.gguf").tensors
