"""The tensors of a safetensors directory, with each quantised weight's parts put together as one lazy tensor.

Trade: which names and element types make up a weight in which scheme. Refuses to know model families: names stay those
of the directory. Called by `safetensors_directory`; nothing but headers, and values of a few bytes, is read here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.converted_tensor import Conversion, ConvertedTensor
from memra.loading.float_weights import Float8Weight, MxFloat4Weight, NvFloat4Weight
from memra.loading.integer_codes import AwqCodes, GptqCodes, Int8Codes, IntegerCodes, PackedCodes
from memra.loading.integer_weights import IntegerWeight
from memra.loading.model_tensor import FLOAT_TYPES, ModelTensor
from memra.loading.number_formats import read_integers
from memra.loading.quantization_config import QuantisationScheme

_ACTIVATION_SUFFIXES: Final = (
    *(".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale", ".output_zero_point"),
    *(".q_scale", ".k_scale", ".v_scale", ".kv_scale"),
)
"""How activations or cached keys would be rounded; memra keeps them as they are."""
_NV_GROUP: Final = 16
_MX_GROUP: Final = 32
_SCALE_NAMES: Final = ("weight_scale_inv", "weight_scale")
_SCALE_TYPES: Final = ("F32", "F16", "BF16")
_UNORDERED: Final = -1
"""compressed-tensors fills the order of groups with this where none was chosen."""


def assemble_weights(
    tensors: Mapping[str, StoredTensor], scheme: QuantisationScheme, *, path: Path
) -> dict[str, ModelTensor]:
    """All tensors by name, quantised ones as `<module>.weight` in a GGML type (see `float_weights`, `integer_weights`).

    Raises:
        CorruptFileError: parts of a weight are missing or contradict each other.
        UnsupportedModelError: a tensor is of a type, or a combination, that memra does not read.
    """
    assembler = _Assembler(tensors, scheme, path)
    for name in tensors:
        assembler.visit(name)
    return assembler.finish()


class _Assembler:
    def __init__(self, tensors: Mapping[str, StoredTensor], scheme: QuantisationScheme, path: Path) -> None:
        self.tensors = tensors
        self.scheme = scheme
        self.path = path
        self.found: dict[str, ModelTensor] = {}
        self.used: set[str] = set()

    def visit(self, name: str) -> None:
        """Take up the weight that this name is the main part of, if it is one."""
        stem, _, part = name.rpartition(".")
        if part == "weight_packed":
            self.keep(f"{stem}.weight", self.packed(stem))
        elif part == "qweight":
            self.keep(f"{stem}.weight", IntegerWeight(self.transposed(stem)))
            self.drop_zero_bias(f"{stem}.bias")
        elif name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in self.tensors:
            self.keep(name.removesuffix("_blocks"), self.blocks(name))
        elif part == "weight" and self.tensors[name].quant_type not in FLOAT_TYPES:
            self.keep(name, self.plain(stem))

    def finish(self) -> dict[str, ModelTensor]:
        """Add what is stored as it is used, and refuse what has no use."""
        for name, tensor in self.tensors.items():
            if name in self.used or name.endswith(_ACTIVATION_SUFFIXES):
                continue
            if tensor.quant_type not in FLOAT_TYPES:
                raise UnsupportedModelError(
                    f"{self.path}: tensor {name!r} is of type {tensor.quant_type!r}, which memra does not read there: "
                    "use the unquantised model or a GGUF file"
                )
            self.found[name] = tensor
        return self.found

    def keep(self, name: str, conversion: Conversion) -> None:
        if name in self.found or (name in self.tensors and name not in self.used):
            raise CorruptFileError(f"{self.path}: holds the weight {name!r} twice: fetch it again")
        self.found[name] = ConvertedTensor(name, conversion)

    def part(self, name: str, *types: str) -> StoredTensor:
        """A part that has to be there."""
        tensor = self.optional(name, *types)
        if tensor is None:
            raise CorruptFileError(f"{self.path}: lacks the tensor {name!r} of a quantised weight: fetch it again")
        return tensor

    def optional(self, name: str, *types: str) -> StoredTensor | None:
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if types and tensor.quant_type not in types:
            raise UnsupportedModelError(
                f"{self.path}: tensor {name!r} is of type {tensor.quant_type!r}, not {' or '.join(types)}: "
                "use the unquantised model or a GGUF file"
            )
        self.used.add(name)
        return tensor

    def check(self, tensor: StoredTensor, *shapes: tuple[int, ...]) -> None:
        if tensor.shape not in shapes:
            expected = " or ".join(str(list(shape)) for shape in shapes)
            raise CorruptFileError(
                f"{self.path}: tensor {tensor.name!r} has the shape {list(tensor.shape)}, not {expected}: "
                "fetch it again"
            )

    def matrix(self, tensor: StoredTensor) -> tuple[int, int]:
        """The two sizes of a tensor, neither of them zero."""
        if len(tensor.shape) != 2 or 0 in tensor.shape:  # noqa: PLR2004  (rows and columns)
            raise UnsupportedModelError(
                f"{self.path}: the quantised tensor {tensor.name!r} has the shape {list(tensor.shape)}, and memra "
                "reads matrices only: use the unquantised model or a GGUF file"
            )
        return tensor.shape[0], tensor.shape[1]

    def plain(self, stem: str) -> Conversion:
        """A weight under its usual name: FP8, NVFP4 as ModelOpt writes it, or signed bytes."""
        weight = self.part(f"{stem}.weight", "F8_E4M3", "U8", "I8")
        if weight.quant_type == "U8":
            return self.nvfp4(
                weight, self.part(f"{stem}.weight_scale", "F8_E4M3"), self.part(f"{stem}.weight_scale_2", "F32")
            )
        if weight.quant_type == "I8":
            return IntegerWeight(self.signed_bytes(stem, weight))
        names = [name for part in _SCALE_NAMES if (name := f"{stem}.{part}") in self.tensors]
        return self.float8(weight, self.part(names[0], *_SCALE_TYPES, "F8_E8M0") if names else None)

    def float8(self, weight: StoredTensor, scale: StoredTensor | None) -> Conversion:
        rows, columns = self.matrix(weight)
        if scale is None or scale.shape in {(), (1,), (1, 1)}:
            return Float8Weight(weight, scale, (rows, columns))
        if scale.shape in {(rows,), (rows, 1)}:
            return Float8Weight(weight, _as_column(scale), (1, columns))
        down, across = self.scheme.block
        self.check(scale, (), (1,), (rows, 1), (-(-rows // down), -(-columns // across)))
        return Float8Weight(weight, scale, self.scheme.block)

    def packed(self, stem: str) -> Conversion:
        """compressed-tensors: words of integers, or pairs of four-bit floats."""
        packed = self.part(f"{stem}.weight_packed", "I32", "U8")
        rows, words = self.matrix(packed)
        if packed.quant_type == "I32":
            return IntegerWeight(self.packed_integers(stem, packed))
        self.optional(f"{stem}.weight_shape")
        overall = self.optional(f"{stem}.weight_global_scale", "F32")
        if overall is not None:
            return self.nvfp4(packed, self.part(f"{stem}.weight_scale", "F8_E4M3"), overall, divides=True)
        scale = self.part(f"{stem}.weight_scale", "U8", "F8_E8M0")
        self.check(scale, (rows, words * 2 // _MX_GROUP))
        self.check(packed, (rows, scale.shape[1] * _MX_GROUP // 2))
        return MxFloat4Weight(packed, scale)

    def nvfp4(
        self, codes: StoredTensor, scale: StoredTensor, overall: StoredTensor, *, divides: bool = False
    ) -> Conversion:
        rows, packed = self.matrix(codes)
        self.check(scale, (rows, packed * 2 // _NV_GROUP))
        self.check(codes, (rows, scale.shape[1] * _NV_GROUP // 2))
        self.check(overall, (), (1,), (1, 1))
        return NvFloat4Weight(codes, scale, overall, divides)

    def packed_integers(self, stem: str, packed: StoredTensor) -> IntegerCodes:
        rows, words = self.matrix(packed)
        scale = self.part(f"{stem}.weight_scale", *_SCALE_TYPES)
        shape = self.part(f"{stem}.weight_shape", "I32", "I64")
        self.check(shape, (2,))
        columns = int(read_integers(shape)[1])
        num_bits = next((bits for bits in (4, 8) if columns > 0 and -(-columns // (32 // bits)) == words), None)
        if num_bits is None or int(read_integers(shape)[0]) != rows:
            raise UnsupportedModelError(
                f"{self.path}: {packed.name!r} holds neither four nor eight bits a value: use a GGUF file"
            )
        groups = self.order(f"{stem}.weight_g_idx", columns, self.num_groups(scale, rows, columns))
        zero = self.optional(f"{stem}.weight_zero_point", "I32")
        if zero is not None:
            self.check(zero, (-(-rows // (32 // num_bits)), self.num_groups(scale, rows, columns)))
        return PackedCodes((rows, columns), num_bits, packed, scale, zero, groups)

    def signed_bytes(self, stem: str, weight: StoredTensor) -> IntegerCodes:
        rows, columns = self.matrix(weight)
        scale = self.part(f"{stem}.weight_scale", *_SCALE_TYPES)
        self.num_groups(scale, rows, columns)
        zero = self.optional(f"{stem}.weight_zero_point", "I8")
        if zero is not None:
            self.check(zero, scale.shape)
        return Int8Codes(weight, scale, zero)

    def num_groups(self, scale: StoredTensor, rows: int, columns: int) -> int:
        """Groups of columns, from scales that are `[rows, groups]`, `[rows]` or one for all."""
        if scale.shape in {(), (1,), (1, 1), (rows,)}:
            return 1
        groups = scale.shape[1] if len(scale.shape) > 1 else 0
        if scale.shape != (rows, groups) or groups < 1 or columns % groups:
            raise CorruptFileError(
                f"{self.path}: the scales {scale.name!r} have the shape {list(scale.shape)}, which does not fit a "
                f"weight of {rows} rows and {columns} columns: fetch it again"
            )
        return groups

    def transposed(self, stem: str) -> IntegerCodes:
        """AWQ's or GPTQ's three or four tensors."""
        packed = self.part(f"{stem}.qweight", "I32")
        scale = self.part(f"{stem}.scales", *_SCALE_TYPES)
        zero = self.part(f"{stem}.qzeros", "I32")
        self.matrix(packed)
        per_word = 32 // self.scheme.num_bits
        if self.scheme.method == "awq":
            columns, rows = packed.shape[0], packed.shape[1] * per_word
        elif self.scheme.method == "gptq":
            columns, rows = packed.shape[0] * per_word, packed.shape[1]
        else:
            raise UnsupportedModelError(
                f"{self.path}: holds {packed.name!r}, but config.json names neither AWQ nor GPTQ: fetch it again"
            )
        groups = self.matrix(scale)[0]
        self.check(scale, (groups, rows))
        self.check(zero, (groups, rows // per_word))
        order = self.order(f"{stem}.g_idx", columns, groups)
        if order is None and columns % groups:
            raise CorruptFileError(f"{self.path}: {groups} groups do not divide {columns} columns of {packed.name!r}")
        if self.scheme.method == "awq":
            return AwqCodes(packed, scale, zero)
        return GptqCodes(self.scheme.num_bits, packed, scale, zero, self.scheme.zeros_are_one_less, order)

    def order(self, name: str, columns: int, groups: int) -> NDArray[np.int64] | None:
        """The group of each column, or None where groups follow each other in equal lengths."""
        tensor = self.optional(name, "I32", "I64")
        if tensor is None or tensor.shape == (0,):
            return None
        self.check(tensor, (columns,))
        order = read_integers(tensor).astype(np.int64)
        if (order == _UNORDERED).all():
            return None
        if columns % groups == 0 and np.array_equal(order, np.arange(columns) // (columns // groups)):
            return None
        if (order < 0).any() or (order >= groups).any():
            raise CorruptFileError(
                f"{self.path}: tensor {name!r} names groups outside 0 to {groups - 1}: fetch it again"
            )
        return order

    def blocks(self, name: str) -> Conversion:
        """MXFP4 as gpt-oss stores it: blocks of sixteen bytes, and their exponents."""
        codes = self.part(name, "U8")
        exponents = self.part(f"{name.removesuffix('_blocks')}_scales", "U8", "F8_E8M0")
        if not exponents.shape or 0 in exponents.shape:
            self.matrix(exponents)
        self.check(codes, (*exponents.shape, _MX_GROUP // 2))
        return MxFloat4Weight(codes, exponents)

    def drop_zero_bias(self, name: str) -> None:
        """Leave out a bias of zeros, which GPTQ's tools add to modules that have none."""
        bias = self.tensors.get(name)
        if bias is not None and not bias.data.any():
            self.used.add(name)


def _as_column(scale: StoredTensor) -> StoredTensor:
    """Scales by row as `[rows, 1]`."""
    return StoredTensor(scale.name, (scale.shape[0], 1), scale.quant_type, scale.data, scale.mapping, scale.offset)
