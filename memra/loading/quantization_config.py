"""How a safetensors directory says that its weights are quantised: `quantization_config` of config.json.

Trade: the few facts that the tensors themselves do not tell, and a refusal by name of every scheme that memra does not
read. Refuses to know tensors. Called by `safetensors_directory`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration

_REMEDY: Final = "use the unquantised model or a GGUF file"
_KEYS: Final = ("quantization_config", "compression_config")
_METHODS: Final = ("fp8", "fbgemm_fp8", "compressed-tensors", "awq", "gptq", "modelopt", "mxfp4")
_PACKED_FORMATS: Final = (
    *("dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized"),
)
_BITS: Final = (4, 8)


@dataclass(frozen=True, slots=True)
class QuantisationScheme:
    """What has to be known beside the tensors.

    Attributes:
        method: `quant_method`, or empty for weights that are not quantised.
        num_bits: of AWQ's and GPTQ's codes.
        block: rows and columns that share an FP8 scale, where scales are given by block.
        zeros_are_one_less: GPTQ's first format.
    """

    method: str = ""
    num_bits: int = 4
    block: tuple[int, int] = (128, 128)
    zeros_are_one_less: bool = True


def read_scheme(config: Configuration) -> QuantisationScheme:
    """The scheme that config.json names.

    Raises:
        CorruptFileError: a value is of the wrong type.
        UnsupportedModelError: a scheme, or a variant of one, that memra does not read.
    """
    found = next((section for key in _KEYS if (section := config.mapping(key)) is not None), None)
    if found is None:
        return QuantisationScheme()
    method = found.values.get("quant_method") or found.values.get("quantization_method")
    if method not in _METHODS:
        raise _unsupported(found, "quant_method", method)
    match method:
        case "compressed-tensors":
            _check_compressed(found)
        case "awq":
            _require(found, "version", ("gemm",))
            _require(found, "bits", (4,))
        case "gptq":
            return _gptq(found)
        case _:
            pass
    return QuantisationScheme(method=str(method), block=_block(found))


def _gptq(found: Configuration) -> QuantisationScheme:
    if found.values.get("is_marlin_format") is True:
        raise _unsupported(found, "is_marlin_format", True)
    _require(found, "checkpoint_format", ("gptq", "gptq_v2"))
    _require(found, "bits", _BITS)
    return QuantisationScheme(
        method="gptq",
        num_bits=found.integer("bits", 4),
        zeros_are_one_less=found.values.get("checkpoint_format") != "gptq_v2",
    )


def _check_compressed(found: Configuration) -> None:
    _require(found, "format", _PACKED_FORMATS)
    sparsity = found.mapping("sparsity_config")
    if sparsity is not None:
        _require(sparsity, "format", ("dense",))
    groups = found.mapping("config_groups")
    for name in groups.values if groups is not None else ():
        group = groups.mapping(name) if groups is not None else None
        weights = group.mapping("weights") if group is not None else None
        if weights is not None:
            _require(weights, "num_bits", _BITS)


def _require(section: Configuration, key: str, accepted: tuple[object, ...]) -> None:
    """See that a key is absent or has one of the values that memra reads; words are compared in lower case."""
    value = section.values.get(key)
    word = value.lower() if isinstance(value, str) else value
    if value is not None and (isinstance(value, bool) or word not in accepted):
        raise _unsupported(section, key, value)


def _unsupported(section: Configuration, key: str, value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{section.path}: weights quantised with {key!r} {value!r} are not supported: {_REMEDY}"
    )


def _block(found: Configuration) -> tuple[int, int]:
    value = found.values.get("weight_block_size") or _structure(found.values)
    if value is None:
        return QuantisationScheme().block
    if not isinstance(value, list) or [type(item) for item in value] != [int, int] or min(value) < 1:
        raise CorruptFileError(f"{found.path}: 'weight_block_size' is {value!r}, not two sizes: fetch the file again")
    return value[0], value[1]


def _structure(values: Mapping[str, object]) -> object:
    """compressed-tensors gives the block by group of layers; those that have one have the same."""
    groups = values.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and weights.get("block_structure"):
            return weights["block_structure"]
    return None
