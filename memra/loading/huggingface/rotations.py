"""Rotary embeddings as configurations describe them, old and new spelling (transformers 4 and 5).

Trade: which base and which scaling. Linear scaling and yarn become GGUF's keys, Llama 3's a tensor of factors. Refuses
to know families.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from memra.errors import UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.huggingface.configuration import Configuration, shown

_DEFAULT_BASE: Final = 10_000.0
_LOG_SLOPE: Final = 0.1
"""Growth of yarn's magnitude with the logarithm of the factor: arXiv 2309.00071, section 3.4."""
_NARROWEST_SPAN: Final = 1e-9
"""Llama 4 blends nothing: both its factors are 1."""
_TRUNCATE_KEY: Final = "memra.rope_truncate"
"""Metadata key without a counterpart in GGUF: False where yarn's ramp begins and ends between two pairs."""


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Parameters of the frequency scaling that came with Llama 3.1; GGUF stores the resulting factors as a tensor."""

    base: float
    rotary_dims: int
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_tokens: int


def rope_parameters(config: Configuration, layer_type: str = "full_attention") -> Configuration | None:
    """The rotation's settings: nested in transformers 5, by layer type if need be; `rope_scaling` in 4."""
    parameters = config.mapping("rope_parameters")
    if parameters is None:
        return config.mapping("rope_scaling")
    return parameters.mapping(layer_type) or parameters


def rope_type(config: Configuration, known: tuple[str, ...] = ("default", "linear", "llama3", "yarn")) -> str:
    """The kind of scaling, one of `known`.

    Raises:
        UnsupportedModelError: any other kind.
    """
    rope = rope_parameters(config)
    kind = "default" if rope is None else rope.values.get("rope_type") or rope.values.get("type") or "default"
    if kind not in known:  # a damaged file may hold what no set takes
        raise UnsupportedModelError(
            f"{config.path}: the rope scaling {shown(kind)} is not supported: use a GGUF file or another model"
        )
    return str(kind)


def rope_base(config: Configuration, default: float = _DEFAULT_BASE, layer_type: str = "full_attention") -> float:
    """Theta of the angles."""
    rope = rope_parameters(config, layer_type)
    if rope is not None and rope.has("rope_theta"):
        return rope.number("rope_theta")
    return config.number("rope_theta", default)


def rope_metadata(config: Configuration, prefix: str, *, default_base: float = _DEFAULT_BASE) -> dict[str, object]:
    """Base, linear scaling and yarn under GGUF's keys.

    Raises:
        UnsupportedModelError: another kind of scaling than none, linear, yarn and Llama 3's.
    """
    metadata: dict[str, object] = {f"{prefix}.rope.freq_base": rope_base(config, default_base)}
    rope = rope_parameters(config)
    if rope is not None and rope_type(config) == "linear":
        metadata[f"{prefix}.rope.scaling.type"] = "linear"
        metadata[f"{prefix}.rope.scaling.factor"] = rope.number("factor")
    elif rope is not None and rope_type(config) == "yarn":
        metadata |= _yarn_metadata(rope, config, prefix)
    return metadata


def _yarn_metadata(rope: Configuration, config: Configuration, prefix: str) -> dict[str, object]:
    """Yarn's parameters; `mscale` and `mscale_all_dim` together become the attention factor, as in transformers."""
    original = rope.integer("original_max_position_embeddings", config.integer("max_position_embeddings"))
    factor = rope.number("factor", config.integer("max_position_embeddings") / original)
    metadata: dict[str, object] = {"type": "yarn", "factor": factor, "original_context_length": original}
    for key in ("beta_fast", "beta_slow"):
        if rope.has(key):
            metadata[f"yarn_{key}"] = rope.number(key)
    if rope.has("attention_factor"):
        metadata["yarn_attn_factor"] = rope.number("attention_factor")
    elif rope.values.get("mscale") and rope.values.get("mscale_all_dim"):
        growth = _LOG_SLOPE * math.log(max(factor, 1.0))
        metadata["yarn_attn_factor"] = (growth * rope.number("mscale") + 1) / (
            growth * rope.number("mscale_all_dim") + 1
        )
    keys = {f"{prefix}.rope.scaling.{name}": value for name, value in metadata.items()}
    return keys if rope.values.get("truncate") is not False else keys | {_TRUNCATE_KEY: False}


def llama3_factors(config: Configuration, *, rotary_dims: int) -> StoredTensor | None:
    """The tensor `rope_freqs.weight`, or None where the configuration does not ask for it."""
    rope = rope_parameters(config)
    if rope is None or rope.values.get("rope_type", rope.values.get("type")) != "llama3":
        return None
    return rope_factors(
        Llama3Scaling(
            base=rope_base(config),
            rotary_dims=rotary_dims,
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_context_tokens=rope.integer("original_max_position_embeddings"),
        )
    )


def rope_factors(scaling: Llama3Scaling) -> StoredTensor:
    """The tensor `rope_freqs.weight`, `[rotary_dims / 2]`, that divides the rotation frequencies.

    The formula is the one of `rope_type: llama3` in transformers: short wavelengths stay, long ones are stretched by
    `factor`, those between are blended.
    """
    exponents = np.arange(0, scaling.rotary_dims, 2, dtype=np.float64) / scaling.rotary_dims
    wavelengths = 2 * math.pi * scaling.base**exponents
    ratio = scaling.original_context_tokens / wavelengths
    span = max(scaling.high_freq_factor - scaling.low_freq_factor, _NARROWEST_SPAN)
    blend = np.clip((ratio - scaling.low_freq_factor) / span, 0.0, 1.0)
    factors = (1 / ((1 - blend) / scaling.factor + blend)).astype(np.float32)
    return StoredTensor("rope_freqs.weight", factors.shape, "F32", factors.view(np.uint8))
