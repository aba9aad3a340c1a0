import random
import struct
import time
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.safetensors_file import map_safetensors
from tests.loading.model_directory import safetensors_bytes, tensors

SMALL = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, dtype=np.float32)}


def _raw(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


CORRUPT = {
    "an empty file": b"",
    "seven bytes": bytes(7),
    "a header past the end": struct.pack("<Q", 1 << 60) + b"{}",
    "no JSON": _raw(b"hello"),
    "no UTF-8": _raw(b'{"\xff": 1}'),
    "a list": _raw(b"[]"),
    "deep nesting": _raw(b"[" * 200_000),
    "a number of many digits": _raw(b'{"a": ' + b"9" * 5000 + b"}"),
    "a tensor that is a number": _raw(b'{"a": 1}'),
    "no shape": _raw(b'{"a": {"dtype": "F32", "data_offsets": [0, 4]}}', bytes(4)),
    "a negative size": _raw(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', bytes(4)),
    "a fractional size": _raw(b'{"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}', bytes(4)),
    "a huge size": _raw(b'{"a": {"dtype": "F32", "shape": [1152921504606846976], "data_offsets": [0, 4]}}', bytes(4)),
    "many dimensions": _raw(b'{"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}}', bytes(4)),
    "three offsets": _raw(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}', bytes(8)),
    "offsets in reverse": _raw(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}', bytes(4)),
    "data past the end": _raw(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', bytes(4)),
    "a name twice": _raw(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": 1}', bytes(4)),
    "an overlap": _raw(
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
        b' "b": {"dtype": "F16", "shape": [1], "data_offsets": [2, 4]}}',
        bytes(4),
    ),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_broken_file_is_refused(tmp_path, name):
    path = tmp_path / "model.safetensors"
    path.write_bytes(CORRUPT[name])
    with pytest.raises(CorruptFileError, match=r"model\.safetensors.*fetch it again"):
        map_safetensors(path)


def test_another_type_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(_raw(b'{"w": {"dtype": "F8_E5M2", "shape": [1], "data_offsets": [0, 1]}}', bytes(1)))
    with pytest.raises(UnsupportedModelError, match=r"'w'.*F8_E5M2"):
        map_safetensors(path)


def test_a_missing_file_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match="cannot be read"):
        map_safetensors(tmp_path / "model.safetensors")


def test_the_reader_agrees_with_the_safetensors_package(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({**SMALL, "h": np.arange(3, dtype=np.float16)}, path)
    ours = map_safetensors(path)
    theirs = load_file(path)
    assert ours.size_bytes == path.stat().st_size
    assert ours.tensors.keys() == theirs.keys()
    for name, values in theirs.items():
        assert np.array_equal(ours.tensors[name].dequantise(), values.astype(np.float32))


def test_every_mutation_of_a_header_ends_in_a_clear_error_or_a_usable_file(tmp_path):
    rng = random.Random(11)  # noqa: S311  (reproducible, not secret)
    whole = safetensors_bytes(tensors("llama"))
    header_bytes = 8 + struct.unpack("<Q", whole[:8])[0]
    path = tmp_path / "model.safetensors"
    outcomes = {"refused": 0, "opened": 0}
    tracemalloc.start()
    try:
        for _ in range(400):
            data = bytearray(whole)
            at = rng.randrange(header_bytes)
            if rng.random() < 0.7:
                data[at] = rng.choice(b'0123456789[]{}",: \x00\xff' + bytes([rng.randrange(256)]))
            else:
                del data[at : at + rng.randint(1, 40)]
            path.write_bytes(data)
            began_s = time.monotonic()
            try:
                for tensor in map_safetensors(path).tensors.values():
                    tensor.dequantise()
                outcomes["opened"] += 1
            except (CorruptFileError, UnsupportedModelError):
                outcomes["refused"] += 1
            assert time.monotonic() - began_s < 2
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert outcomes["refused"] > 100
    assert outcomes["opened"] > 10
