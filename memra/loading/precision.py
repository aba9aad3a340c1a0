"""How exactly a model's weights are kept, in the words of OpenRouter's provider schema (2.4).

Trade: one honest word for a whole model, or none. What counts is what the file says of a weight, not the form that it
is computed in: FP8 held as BF16 is still fp8. Refuses to guess: five and six bits have no word of integers there, and
get none. Called by whoever tells clients of a model; looks at no weight.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType

from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.model_tensor import ModelTensor

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "F32": "fp32",
        "F16": "fp16",
        "BF16": "bf16",
        "F8_E4M3": "fp8",
        "Q8_0": "int8",
        "Q8_K": "int8",
        "Q4_0": "int4",
        "Q4_1": "int4",
        "Q4_K": "int4",
        "IQ4_NL": "int4",
        "IQ4_XS": "int4",
        "MXFP4": "mxfp4",
        "NVFP4": "nvfp4",
    }
)
"""By GGML's names of types; those of fewer than four bits, of five and of six are missing on purpose."""


def precision_of(tensors: Iterable[ModelTensor]) -> str | None:
    """Return the word for the kind that most weights of the matrices are of; None where it has none."""
    num_weights = Counter[str | None]()
    for tensor in tensors:
        if len(tensor.shape) > 1:
            num_weights[_word(tensor)] += prod(tensor.shape)
    return num_weights.most_common(1)[0][0] if num_weights else None


def _word(tensor: ModelTensor) -> str | None:
    """Look through whatever only orders, joins or packs weights, down to the form in which they were stored."""
    while isinstance(tensor, ConvertedTensor):
        conversion = tensor.conversion
        stored: str | None = getattr(conversion, "precision", None)
        if stored is not None:
            return stored
        parts: tuple[ModelTensor, ...] = getattr(conversion, "parts", ())
        inner: ModelTensor | None = parts[0] if parts else getattr(conversion, "source", None)
        if inner is None:
            break
        tensor = inner
    return _WORDS.get(tensor.quant_type)


def word_of(quant_type: str) -> str | None:
    """Return the word for one of GGML's types; None where there is none."""
    return _WORDS.get(quant_type)
