"""What tells the files of one model from those of another."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memra.loading.checkpoint import StoredTensor
from memra.loading.identity import identity_of
from memra.loading.model_path import open_checkpoint
from tests.loading.gguf_bytes import GgufBytes
from tests.loading.model_directory import write_directory


def _identity(path: Path) -> str:
    with open_checkpoint(path) as checkpoint:
        return checkpoint.identity


def _write_gguf(folder: Path) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(GgufBytes().build())
    return path


def _write_safetensors(folder: Path) -> Path:
    return write_directory(folder / "model", "llama")


def _weights_of(path: Path) -> Path:
    return path / "model.safetensors" if path.is_dir() else path


@pytest.mark.parametrize("write", [_write_gguf, _write_safetensors])
def test_an_untouched_model_keeps_its_identity_and_a_changed_one_does_not(
    tmp_path: Path, write: Callable[[Path], Path]
):
    path = write(tmp_path)
    before = _identity(path)
    assert _identity(path) == before
    weights = _weights_of(path)
    times = weights.stat()
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert _identity(path) != before


@pytest.mark.parametrize("write", [_write_gguf, _write_safetensors])
def test_another_file_of_the_same_shape_and_date_has_another_identity(tmp_path: Path, write: Callable[[Path], Path]):
    path = write(tmp_path)
    before, weights = _identity(path), _weights_of(path)
    other = tmp_path / "other"
    shutil.copy2(weights, other)  # the same time of modification, as systems do that date all files alike
    other.replace(weights)
    assert _identity(path) != before


def test_every_stamp_and_every_place_counts():
    data = np.zeros(64, np.uint8)
    tensors = {name: StoredTensor(name, (4, 4), "F32", data) for name in ("a", "b")}
    moved = tensors | {"b": replace(tensors["b"], offset=64)}
    reshaped = tensors | {"b": replace(tensors["b"], shape=(2, 8))}
    retyped = tensors | {"b": replace(tensors["b"], quant_type="BF16")}
    found = {identity_of(["one", "two"], changed) for changed in (tensors, moved, reshaped, retyped)}
    found |= {identity_of(stamps, tensors) for stamps in (["one"], ["two", "one"], ["one", "three"])}
    found.add(identity_of(["one", "two"], {"a": tensors["a"]}))
    assert len(found) == 8
    assert all(len(identity) == 64 for identity in found)
