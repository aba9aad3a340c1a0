"""Directories of the gemma3 family: norms around each branch, windows, a rotation of its own for local layers."""

from dataclasses import replace
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import (
    ATTENTION_NAMES,
    DENSE_NAMES,
    GLOBAL_NAMES,
    POST_NORMS,
    Family,
    Tensors,
    common_metadata,
)
from memra.loading.huggingface.pooling import BEHIND_POOLING
from memra.loading.huggingface.rotations import rope_metadata

_ROPE_BASE: Final = 1e6
"""Gemma3TextConfig's default in transformers."""
_LOCAL_ROPE_BASE: Final = 10_000.0
"""Gemma3TextConfig's default in transformers, and fixed in llama.cpp."""
_SLIDING_WINDOW_PATTERN: Final = 6


_DEFAULTS: Final = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
}
"""Gemma3TextConfig's defaults in transformers, which published files rely on."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    refuse_bidirectional(config)
    return _read_text_metadata(config, prefix)


def _read_encoder_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    if config.values.get("use_bidirectional_attention") is not True:
        raise UnsupportedModelError(
            f"{config.path}: a causal model without a head is not supported: use one with 'use_bidirectional_attention'"
        )
    return _read_text_metadata(config, prefix)


def _read_text_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    config = _with_defaults(config)
    metadata = common_metadata(config, prefix) | rope_metadata(config, prefix, default_base=_ROPE_BASE)
    metadata |= {
        f"{prefix}.attention.scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        f"{prefix}.attention.sliding_window": config.integer("sliding_window", 4096),
        f"{prefix}.attention.sliding_window_pattern": sliding_layers(config, _SLIDING_WINDOW_PATTERN),
        f"{prefix}.rope.freq_base_swa": _local_rope_base(config),
    }
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        if config.has(key):
            metadata[f"{prefix}.{key}"] = config.number(key)
    return metadata


def _with_defaults(config: Configuration) -> Configuration:
    return Configuration({**_DEFAULTS, **config.values}, config.path)


def _add_rope_factors(tensors: Tensors, config: Configuration) -> Tensors:
    return add_rope_factors(tensors, _with_defaults(config))


def refuse_bidirectional(config: Configuration) -> None:
    """Refuse encoders.

    Raises:
        UnsupportedModelError: the model's tokens see those after them.
    """
    if config.values.get("use_bidirectional_attention") is True:
        raise UnsupportedModelError(f"{config.path}: bidirectional attention is not supported: use a causal model")


def sliding_layers(config: Configuration, period: int) -> tuple[bool, ...]:
    """One entry per layer, True where attention is confined to the window; GGUF's array form of the pattern."""
    num_layers = config.integer("num_hidden_layers", limit=MAX_LAYERS)
    layer_types = config.values.get("layer_types")
    if layer_types is None:
        period = config.integer("sliding_window_pattern", period)
        return tuple((layer + 1) % period != 0 for layer in range(num_layers))
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise CorruptFileError(f"{config.path}: 'layer_types' does not list {num_layers} layers: fetch the file again")
    return tuple(kind == "sliding_attention" for kind in layer_types)


def _local_rope_base(config: Configuration) -> float:
    parameters = config.mapping("rope_parameters")
    local = parameters.mapping("sliding_attention") if parameters is not None else None
    if local is not None:
        return local.number("rope_theta", _LOCAL_ROPE_BASE)
    return config.number("rope_local_base_freq", _LOCAL_ROPE_BASE)


_TEXT: Final = Family(
    "gemma3",
    activations=("gelu_pytorch_tanh",),
    layer_names={**ATTENTION_NAMES, **DENSE_NAMES, **POST_NORMS},
    read_metadata=_read_metadata,
    adjust=_add_rope_factors,
    norms_store_offset=True,
    ties_embeddings=True,
)
FAMILIES: Final = {
    "Gemma3ForCausalLM": _TEXT,
    "Gemma3ForConditionalGeneration": replace(
        _TEXT,
        text_config="text_config",
        layers="language_model.model.layers.",
        global_names={f"language_model.{name}": gguf_name for name, gguf_name in GLOBAL_NAMES.items()},
        ignored=("vision_tower.", "multi_modal_projector."),
    ),
    "Gemma3TextModel": replace(
        _TEXT,
        gguf_name="gemma-embedding",
        layers="layers.",
        global_names={
            **{name.removeprefix("model."): gguf_name for name, gguf_name in GLOBAL_NAMES.items()},
            **{name: name for name in BEHIND_POOLING},
        },
        read_metadata=_read_encoder_metadata,
        has_head=False,
        has_dense_modules=True,
    ),
}
