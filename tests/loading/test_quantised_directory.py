"""Whole directories with quantised weights: under GGUF's names, with the values of the plain directory, and running."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import RowBatch, WeightTensors
from memra.loading.checkpoint import Checkpoint, StoredTensor
from memra.loading.requantisation import WeightQuant, requantised
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.loading import model_directory
from tests.loading.model_directory import raw_safetensors, safetensors_bytes, tensors, write_directory

NUM_TOKENS = 9
Parts = dict[str, tuple[str, NDArray[Any]]]
Store = Callable[[str, NDArray[np.float32], np.random.Generator], tuple[Parts, NDArray[np.float32]]]


def _float8(stem: str, weight: NDArray[np.float32], rng: np.random.Generator) -> tuple[Parts, NDArray[np.float32]]:
    torch = pytest.importorskip("torch")
    scales = rng.uniform(0.5, 2, (len(weight), 1)).astype(np.float32)
    codes = torch.from_numpy(weight / scales).to(torch.float8_e4m3fn)
    parts: Parts = {
        f"{stem}.weight": ("F8_E4M3", codes.view(torch.uint8).numpy()),
        f"{stem}.weight_scale": ("F32", scales),
        f"{stem}.input_scale": ("F32", np.ones(1, np.float32)),
    }
    return parts, codes.float().numpy() * scales


def _packed(stem: str, weight: NDArray[np.float32], rng: np.random.Generator) -> tuple[Parts, NDArray[np.float32]]:
    rows, columns = weight.shape
    codes = rng.integers(0, 16, (rows, columns))
    scales = np.full((rows, columns // 32), 2.0**-4, np.float16)
    words = sum(codes[:, at::8] << (4 * at) for at in range(8))
    parts: Parts = {
        f"{stem}.weight_packed": ("I32", np.asarray(words).astype(np.uint32).view(np.int32)),
        f"{stem}.weight_scale": ("F16", scales),
        f"{stem}.weight_shape": ("I64", np.array([rows, columns])),
    }
    return parts, ((codes - 8) * 2.0**-4).astype(np.float32)


SCHEMES: dict[str, tuple[Store, dict[str, Any], str]] = {
    "float8": (_float8, {"quant_method": "fp8"}, "F32"),
    "packed": (_packed, {"quant_method": "compressed-tensors", "format": "pack-quantized"}, "Q4_0"),
}


@pytest.fixture(autouse=True)
def _sizes_that_the_native_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"HIDDEN": 64, "FFN": 96, "HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 16}.items():
        monkeypatch.setattr(model_directory, name, size)


def _pair(tmp_path: Path, scheme: str) -> tuple[Checkpoint, Checkpoint]:
    """A directory with quantised matrices, and one with the values that they stand for."""
    store, section, _ = SCHEMES[scheme]
    rng = np.random.default_rng(8)
    parts: Parts = {}
    plain: dict[str, NDArray[np.float32]] = {}
    for name, array in tensors("qwen2").items():
        if "layers" in name and array.ndim == 2:
            made, plain[name] = store(name.removesuffix(".weight"), array * np.float32(0.1), rng)
            parts |= made
        else:
            parts[name], plain[name] = ("F32", array), array
    quantised = write_directory(tmp_path / "quantised", "qwen2", quantization_config=section)
    (quantised / "model.safetensors").write_bytes(raw_safetensors(parts))
    full = write_directory(tmp_path / "plain", "qwen2")
    (full / "model.safetensors").write_bytes(safetensors_bytes(plain))
    return open_directory(quantised), open_directory(full)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_quantised_directory_has_the_values_and_names_of_the_plain_one(tmp_path, scheme):
    quantised, plain = _pair(tmp_path, scheme)
    assert quantised.metadata == plain.metadata
    assert quantised.tensors.keys() == plain.tensors.keys()
    for name, tensor in plain.tensors.items():
        found = quantised.tensors[name]
        assert (found.name, found.shape) == (name, tensor.shape)
        assert np.array_equal(found.dequantise(), tensor.dequantise())
    assert quantised.tensors["blk.1.ffn_down.weight"].quant_type == SCHEMES[scheme][2]


def _logits(checkpoint: Checkpoint, tensors: WeightTensors) -> bytes:
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
    executor = CpuExecutor(program, tensors, num_threads=2, num_pages=1)
    rows = np.arange(NUM_TOKENS, dtype=np.int32)
    zeros = np.zeros(NUM_TOKENS, np.int32)
    logits = executor.run(RowBatch(rows, rows, zeros, np.zeros((1, 1), np.int32), rows)).copy()
    executor.close()
    assert np.isfinite(logits).all()
    return logits.tobytes()


@pytest.mark.parametrize("quant", list(WeightQuant))
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("tied", [True, False])
def test_weights_made_on_demand_run_as_the_same_bytes_in_a_file(tmp_path, scheme, quant, tied):
    try:
        native.usable_variants()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))
    checkpoint = requantised(_pair(tmp_path, scheme)[0], quant)
    lazy = {name: tensor for name, tensor in checkpoint.tensors.items() if not (tied and name == "output.weight")}
    stored = {
        name: StoredTensor(name, tensor.shape, tensor.quant_type, tensor.data.copy()) for name, tensor in lazy.items()
    }
    assert _logits(checkpoint, lazy) == _logits(checkpoint, stored)
