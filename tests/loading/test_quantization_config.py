from pathlib import Path
from typing import Any

import pytest

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.quantization_config import QuantisationScheme, read_scheme


def _read(values: dict[str, Any] | None, *, key: str = "quantization_config") -> QuantisationScheme:
    return read_scheme(Configuration({key: values}, Path("config.json")))


def _compressed(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", **weights}}},
    }


def test_no_configuration_is_no_scheme():
    assert _read(None) == QuantisationScheme()


def test_float8_tells_its_blocks():
    assert _read({"quant_method": "fp8", "weight_block_size": [64, 256]}).block == (64, 256)
    assert _read({"quant_method": "fp8"}).block == (128, 128)
    assert _read(_compressed(num_bits=8, block_structure=[32, 16])).block == (32, 16)


def test_gptq_tells_its_bits_and_format():
    old = _read({"quant_method": "gptq", "bits": 8, "group_size": 128})
    assert (old.method, old.num_bits, old.zeros_are_one_less) == ("gptq", 8, True)
    assert not _read({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}).zeros_are_one_less


def test_the_older_names_of_the_keys_count_too():
    found = _read({"quantization_method": "compressed-tensors", "format": "dense"}, key="compression_config")
    assert found.method == "compressed-tensors"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": "aqlm"}, "aqlm"),
        ({"quant_method": ["awq"]}, "awq"),
        ({}, "None"),
        ({"quant_method": "awq", "version": "gemv"}, "gemv"),
        ({"quant_method": "awq", "bits": 3}, "3"),
        ({"quant_method": "gptq", "bits": 3}, "3"),
        ({"quant_method": "gptq", "bits": True}, "True"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "marlin"),
        ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, "is_marlin_format"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "marlin-24"),
        ({**_compressed(), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
        (_compressed(num_bits=2), "2"),
    ],
)
def test_a_scheme_that_is_not_read_is_refused_by_name(values, named):
    with pytest.raises(UnsupportedModelError, match=named) as caught:
        _read(values)
    assert "GGUF" in caught.value.message


@pytest.mark.parametrize(
    "values",
    [
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "compressed-tensors", "config_groups": []},
    ],
)
def test_a_value_of_the_wrong_type_is_named(values):
    with pytest.raises(CorruptFileError, match=r"config\.json"):
        _read(values)
