"""Directories of the phi3 family: fused matrices as GGUF keeps them, and longrope's factors, which become tensors."""

import math
from typing import Final

import numpy as np

from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from memra.loading.huggingface.configuration import Configuration, shown
from memra.loading.huggingface.family import PLAIN_NORMS, Family, Tensors, common_metadata, rotary_width
from memra.loading.huggingface.rotations import rope_base, rope_metadata, rope_parameters

_LONGROPE_NAMES: Final = ("longrope", "su", "yarn")
"""The first, and what older configurations of this family call it."""
_ORIGINAL_TOKENS: Final = 4096
"""Phi3Config's default in transformers."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = common_metadata(config, prefix)
    metadata[f"{prefix}.rope.dimension_count"] = rotary_width(config)
    if config.has("sliding_window"):
        metadata[f"{prefix}.attention.sliding_window"] = config.integer("sliding_window")
    rope = _longrope(config)
    if rope is None:
        return metadata | rope_metadata(config, prefix)
    original = _original_tokens(config, rope)
    factor = rope.number("factor", config.integer("max_position_embeddings") / original)
    magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return metadata | {
        f"{prefix}.rope.freq_base": rope_base(config),
        f"{prefix}.rope.scaling.type": "longrope",
        f"{prefix}.rope.scaling.original_context_length": original,
        f"{prefix}.rope.scaling.attn_factor": rope.number("attention_factor", magnitude),
    }


def _longrope(config: Configuration) -> Configuration | None:
    rope = rope_parameters(config)
    if rope is None or (rope.values.get("rope_type") or rope.values.get("type")) not in _LONGROPE_NAMES:
        return None
    return rope


def _original_tokens(config: Configuration, rope: Configuration) -> int:
    default = rope.integer("original_max_position_embeddings", _ORIGINAL_TOKENS)
    return config.integer("original_max_position_embeddings", default)


def _add_factors(tensors: Tensors, config: Configuration) -> Tensors:
    """Add the factors that divide the frequencies, as tensors of GGUF's names."""
    rope = _longrope(config)
    if rope is None:
        return tensors
    length = rotary_width(config) // 2
    for kind in ("short", "long"):
        values = rope.values.get(f"{kind}_factor")
        if (
            not isinstance(values, list)
            or len(values) != length
            or not all(isinstance(value, int | float) and value > 0 for value in values)
        ):
            raise CorruptFileError(
                f"{config.path}: '{kind}_factor' is {shown(values)}, not a list of {length} positive numbers"
            )
        factors = np.array(values, np.float32)
        name = f"rope_factors_{kind}.weight"
        tensors = tensors | {name: StoredTensor(name, factors.shape, "F32", factors.view(np.uint8))}
    return tensors


FAMILIES: Final = {
    "Phi3ForCausalLM": Family(
        "phi3",
        layer_names={
            "input_layernorm": "attn_norm",
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            **PLAIN_NORMS,
        },
        read_metadata=_read_metadata,
        adjust=_add_factors,
    )
}
