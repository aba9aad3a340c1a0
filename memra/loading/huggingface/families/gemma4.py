"""Directories of the gemma4 family: text models, and the text part of those that also see and hear."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.fused_experts import split_fused_experts
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.gemma3 import sliding_layers
from memra.loading.huggingface.family import (
    ATTENTION_NAMES,
    DENSE_NAMES,
    GLOBAL_NAMES,
    POST_NORMS,
    Family,
    Tensors,
    common_metadata,
)

_PERIOD: Final = 6
_GLOBAL_HEAD_DIM: Final = 512
_GLOBAL_ROPE: Final = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
_LOCAL_ROPE: Final = {"rope_type": "default", "rope_theta": 1e4}
"""Gemma4TextConfig's defaults in transformers, all of them."""
_STILL: Final = 1e30
"""What divides the frequency of elements that do not turn, as GGUF converters write it."""

_LAYER_NAMES: Final[Mapping[str, str]] = {
    **ATTENTION_NAMES,
    **DENSE_NAMES,
    **POST_NORMS,
    "layer_scalar": "layer_output_scale.weight",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
}


def _global_names(prefix: str) -> dict[str, str]:
    return {
        **GLOBAL_NAMES,
        f"{prefix}embed_tokens.weight": "token_embd.weight",
        f"{prefix}norm.weight": "output_norm.weight",
        f"{prefix}embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
        f"{prefix}per_layer_model_projection.weight": "per_layer_model_proj.weight",
        f"{prefix}per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    }


@dataclass(frozen=True, slots=True)
class _GlobalHeads:
    """Heads of the layers that see everything."""

    head_dim: int
    num_kv_heads: int


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    if config.values.get("use_bidirectional_attention") == "all":
        raise UnsupportedModelError(f"{config.path}: bidirectional attention is not supported: use a causal model")
    is_local = sliding_layers(config, _PERIOD)
    heads = _global_heads(config, is_local)
    sizes = common_metadata(config, prefix)
    num_layers, num_shared = len(is_local), _optional_count(config, "num_kv_shared_layers")
    head_dim, num_kv_heads = sizes[f"{prefix}.attention.key_length"], config.integer("num_key_value_heads")
    local_rope = _rope(config, "sliding_attention", _LOCAL_ROPE)
    if local_rope.values.get("rope_type", "default") != "default":
        raise UnsupportedModelError(f"{config.path}: scaled rotations of local layers are not supported")
    metadata = sizes | {
        f"{prefix}.feed_forward_length": _ffn_widths(config, num_layers - num_shared, num_layers),
        f"{prefix}.attention.head_count_kv": tuple(num_kv_heads if local else heads.num_kv_heads for local in is_local),
        f"{prefix}.attention.key_length": heads.head_dim,
        f"{prefix}.attention.value_length": heads.head_dim,
        f"{prefix}.attention.key_length_swa": head_dim,
        f"{prefix}.attention.value_length_swa": head_dim,
        f"{prefix}.attention.sliding_window": config.integer("sliding_window"),
        f"{prefix}.attention.sliding_window_pattern": is_local,
        f"{prefix}.attention.shared_kv_layers": num_shared,
        f"{prefix}.rope.dimension_count": heads.head_dim,
        f"{prefix}.rope.dimension_count_swa": head_dim,
        f"{prefix}.rope.freq_base": _rope(config, "full_attention", _GLOBAL_ROPE).number("rope_theta"),
        f"{prefix}.rope.freq_base_swa": local_rope.number("rope_theta"),
        f"{prefix}.embedding_length_per_layer_input": _per_layer_width(config),
    }
    if config.has("final_logit_softcapping"):
        metadata[f"{prefix}.final_logit_softcapping"] = config.number("final_logit_softcapping")
    return metadata | (_mixture(config, prefix) if config.values.get("enable_moe_block") is True else {})


def _ffn_widths(config: Configuration, first_shared: int, num_layers: int) -> int | tuple[int, ...]:
    """One width, or one a layer where those that share keys and values are twice as wide."""
    width = config.integer("intermediate_size")
    if config.values.get("use_double_wide_mlp") is not True:
        return width
    return tuple(width if index < first_shared else 2 * width for index in range(num_layers))


def _mixture(config: Configuration, prefix: str) -> dict[str, object]:
    return {
        f"{prefix}.expert_count": config.integer("num_experts"),
        f"{prefix}.expert_used_count": config.integer("top_k_experts"),
        f"{prefix}.expert_feed_forward_length": config.integer("moe_intermediate_size"),
    }


def _optional_count(config: Configuration, key: str) -> int:
    """A count that may be 0 or absent."""
    return config.integer(key) if config.values.get(key) else 0


def _per_layer_width(config: Configuration) -> int:
    """Elements of a token's vector for one layer; 0 where it has none."""
    width = _optional_count(config, "hidden_size_per_layer_input")
    vocab_size = config.integer("vocab_size")
    if width and config.integer("vocab_size_per_layer_input", vocab_size) != vocab_size:
        raise UnsupportedModelError(
            f"{config.path}: 'vocab_size_per_layer_input' differs from the 'vocab_size' of {vocab_size}: not supported"
        )
    return width


def _global_heads(config: Configuration, is_local: tuple[bool, ...]) -> _GlobalHeads:
    """Heads of global layers: by their own keys in files, layer by layer where transformers 5 saved them.

    Raises:
        UnsupportedModelError: layers of a kind differ among themselves.
    """
    num_kv_heads = config.integer("num_key_value_heads")
    layers = config.mapping("per_layer_config")
    if layers is None:
        keys_are_values = config.values.get("attention_k_eq_v") is True
        own = config.integer("num_global_key_value_heads", num_kv_heads) if keys_are_values else num_kv_heads
        return _GlobalHeads(config.integer("global_head_dim", _GLOBAL_HEAD_DIM), own)
    found = set()
    for index, local in enumerate(is_local):
        changes = layers.mapping(str(index)) or Configuration({}, config.path)
        heads = _GlobalHeads(
            changes.integer("head_dim", config.integer("head_dim")),
            changes.integer("num_key_value_heads", num_kv_heads),
        )
        if local and changes.values:
            raise UnsupportedModelError(f"{config.path}: 'per_layer_config' changes a local layer: not supported")
        if not local:
            found.add(heads)
    if len(found) != 1:
        raise UnsupportedModelError(f"{config.path}: global layers of {len(found)} kinds are not supported")
    return found.pop()


def _rope(config: Configuration, kind: str, default: Mapping[str, object]) -> Configuration:
    """The rotation of a kind of layers."""
    parameters = config.mapping("rope_parameters")
    found = None if parameters is None else parameters.mapping(kind)
    return Configuration(default, config.path) if found is None else found


def _adjust(tensors: Tensors, config: Configuration) -> Tensors:
    """Add the rotation of global layers, and cut the experts' fused matrices."""
    head_dim = _global_heads(config, sliding_layers(config, _PERIOD)).head_dim
    factors = _rope_factors(_rope(config, "full_attention", _GLOBAL_ROPE), head_dim)
    return split_fused_experts(tensors) | {factors.name: factors}


def _rope_factors(rope: Configuration, head_dim: int) -> StoredTensor:
    """The tensor `rope_freqs.weight`, `[head_dim / 2]`: only the first elements of each half of a head turn.

    Raises:
        UnsupportedModelError: another kind of rotation than the plain and the proportional one.
        CorruptFileError: it turns more than the head.
    """
    kind = rope.values.get("rope_type", "default")
    if kind not in ("default", "proportional"):
        raise UnsupportedModelError(f"{rope.path}: rope scaling of type {kind!r} is not supported for gemma4")
    is_proportional = kind == "proportional"
    share = rope.number("partial_rotary_factor", 1.0) if is_proportional else 1.0
    num_turned = int(share * head_dim // 2)
    if num_turned > head_dim // 2:
        raise CorruptFileError(f"{rope.path}: 'partial_rotary_factor' is {share}, above 1: fetch the file again")
    factors = np.full(head_dim // 2, _STILL, np.float32)
    factors[:num_turned] = rope.number("factor", 1.0) if is_proportional else 1.0
    return StoredTensor("rope_freqs.weight", factors.shape, "F32", factors.view(np.uint8))


_TEXT: Final = Family(
    "gemma4",
    activations=("gelu_pytorch_tanh",),
    layer_names=_LAYER_NAMES,
    global_names=_global_names("model."),
    read_metadata=_read_metadata,
    adjust=_adjust,
    ties_embeddings=True,
)
_WITH_TOWERS: Final = replace(
    _TEXT,
    text_config="text_config",
    layers="model.language_model.layers.",
    global_names=_global_names("model.language_model."),
    ignored=(
        "model.vision_tower.",
        "model.embed_vision.",
        "model.vision_embedder.",
        "model.audio_tower.",
        "model.embed_audio.",
    ),
)
FAMILIES: Final = {
    "Gemma4ForCausalLM": _TEXT,
    "Gemma4ForConditionalGeneration": _WITH_TOWERS,
    "Gemma4UnifiedForCausalLM": _TEXT,
    "Gemma4UnifiedForConditionalGeneration": _WITH_TOWERS,
}
