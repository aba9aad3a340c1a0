import mmap
import subprocess
import sys
from pathlib import Path

import gguf
import gguf.quants
import numpy as np
import pytest

from memra.loading.checkpoint import StoredTensor, bytes_per_row
from memra.loading.gguf_file import open_gguf

DEQUANTISABLE = sorted(
    {kind.name for kind in gguf.quants._type_traits} | {"F32", "F16"},
)


@pytest.mark.parametrize("quant_type", DEQUANTISABLE)
def test_random_bytes_dequantise_row_by_row_as_in_the_gguf_package(quant_type):
    kind = gguf.GGMLQuantizationType[quant_type]
    columns = 512
    num_bytes = bytes_per_row(columns, quant_type)
    rows = np.random.default_rng(7).integers(0, 256, size=(6, num_bytes), dtype=np.uint8)
    tensor = StoredTensor("w", (2, 3, columns), quant_type, rows.reshape(-1))
    values = tensor.dequantise()
    assert values.shape == (2, 3, columns)
    assert values.dtype == np.float32
    assert values.flags.writeable
    for row, found in zip(rows, values.reshape(6, columns), strict=True):
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(row.reshape(1, -1), kind).reshape(-1)
        assert found.tobytes() == np.ascontiguousarray(expected, dtype=np.float32).tobytes()


def test_q8_0_is_a_half_float_scale_times_signed_bytes():
    scale = np.array([0.5], dtype=np.float16).view(np.uint8)
    signed = np.arange(-16, 16, dtype=np.int8).view(np.uint8)
    tensor = StoredTensor("w", (1, 32), "Q8_0", np.concatenate([scale, signed]))
    assert np.array_equal(tensor.dequantise(), np.arange(-16, 16, dtype=np.float32).reshape(1, 32) * 0.5)


def test_bfloat16_is_the_upper_half_of_a_float32():
    values = np.array([1.0, -2.5, 3.0e38, 0.0], dtype=np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    tensor = StoredTensor("w", (4,), "BF16", upper.view(np.uint8))
    assert np.array_equal(tensor.dequantise().view(np.uint32), upper.astype(np.uint32) << 16)


def test_rows_that_blocks_do_not_fill_have_no_size():
    assert bytes_per_row(32, "Q8_0") == 34
    assert bytes_per_row(33, "Q8_0") is None
    assert bytes_per_row(256, "Q4_K") == 144


def test_bytes_that_contradict_the_shape_are_refused():
    with pytest.raises(ValueError, match="do not hold"):
        StoredTensor("w", (2, 32), "Q8_0", np.zeros(34, dtype=np.uint8)).dequantise()


def test_importing_the_room_imports_no_torch():
    modules = ["checkpoint", "gguf_file", "safetensors_directory", "sources", "packages", "hub", "known_models"]
    imports = "; ".join(f"import memra.loading.{module}" for module in modules)
    script = (
        f"{imports}; import sys; print([m for m in ('torch', 'huggingface_hub', 'safetensors') if m in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert finished.stdout.strip() == "[]"


@pytest.mark.models
def test_released_bytes_leave_the_resident_memory_and_can_be_read_again(smollm2_path: Path):
    checkpoint = open_gguf(smollm2_path)
    tensor = checkpoint.tensors["token_embd.weight"]
    before = tensor.data.copy()
    resident = _resident_bytes()
    tensor.release()
    assert _resident_bytes() < resident - 0.9 * tensor.data.size
    np.testing.assert_array_equal(tensor.data, before)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * mmap.PAGESIZE
