"""Directories of the step35 family: settings layer by layer, and stacked experts."""

from typing import Final

import numpy as np

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration, shown
from memra.loading.huggingface.family import ATTENTION_NAMES, DENSE_NAMES, PLAIN_NORMS, Family, Tensors, head_width
from memra.loading.huggingface.rotations import Llama3Scaling, rope_factors

_ROPE_BASE: Final = 10_000.0
_LOCAL: Final = "sliding_attention"
_FACTORS: Final = "rope_freqs.weight"
_DRAFTING: Final = tuple(f"model.layers.{index}." for index in (45, 46, 47))
"""The layers behind the last of Step 3.5 Flash, which draft further tokens."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    num_layers = config.integer("num_hidden_layers", limit=MAX_LAYERS)
    is_local = [kind == _LOCAL for kind in _per_layer(config, "layer_types", num_layers)]
    _check_rotated_shares(config, is_local)
    sizes: dict[str, object] = {
        "block_count": num_layers,
        "context_length": config.integer("max_position_embeddings"),
        "embedding_length": config.integer("hidden_size"),
        "feed_forward_length": config.integer("intermediate_size"),
        "vocab_size": config.integer("vocab_size"),
        "attention.key_length": head_width(config),
        "attention.value_length": head_width(config),
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-5),
        "attention.sliding_window": config.integer("sliding_window"),
        "attention.sliding_window_pattern": tuple(is_local),
        "expert_count": config.integer("moe_num_experts"),
        "expert_used_count": config.integer("moe_top_k"),
        "expert_feed_forward_length": config.integer("moe_intermediate_size"),
        "expert_shared_feed_forward_length": config.integer("share_expert_dim"),
        "expert_weights_norm": config.values.get("norm_expert_weight", True) is True,
        "expert_weights_scale": config.number("moe_router_scaling_factor", 1.0),
    }
    sizes |= _heads(config, is_local)
    for key, name in (("swiglu_limits", "swiglu_clamp_exp"), ("swiglu_limits_shared", "swiglu_clamp_shexp")):
        if config.has(key):
            sizes[name] = tuple(_bound(config, key, value) for value in _per_layer(config, key, num_layers))
    bases = _rope_bases(config, is_local)
    sizes |= {"rope.freq_base": bases[False], "rope.freq_base_swa": bases[True]}
    return {f"{prefix}.{key}": value for key, value in sizes.items()}


def _heads(config: Configuration, is_local: list[bool]) -> dict[str, object]:
    """Heads of every layer: those that see a window have settings of their own."""
    local = config.mapping("attention_other_setting") or config
    heads, groups = "num_attention_heads", "num_attention_groups"
    return {
        "attention.head_count": tuple((local if flag else config).integer(heads) for flag in is_local),
        "attention.head_count_kv": tuple((local if flag else config).integer(groups) for flag in is_local),
    }


def _per_layer(config: Configuration, key: str, num_layers: int) -> list[object]:
    """A list with an entry a layer; what follows belongs to layers that draft.

    Raises:
        CorruptFileError: it is no list, or too short.
    """
    values = config.values.get(key)
    if not isinstance(values, list) or len(values) < num_layers:
        raise CorruptFileError(f"{config.path}: {key!r} does not list {num_layers} layers: fetch the file again")
    return values[:num_layers]


def _bound(config: Configuration, key: str, value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise CorruptFileError(f"{config.path}: {key!r} holds {shown(value)}, which is no bound: fetch the file again")
    return float(value)


def _rope_bases(config: Configuration, is_local: list[bool]) -> dict[bool, float]:
    """Theta of layers that see everything (False) and of those that see a window (True)."""
    if not isinstance(config.values.get("rope_theta"), list):
        base = config.number("rope_theta", _ROPE_BASE)
        return {False: base, True: base}
    bases = {False: _ROPE_BASE, True: _ROPE_BASE}
    for flag, theta in zip(is_local, _per_layer(config, "rope_theta", len(is_local)), strict=True):
        bases[flag] = _bound(config, "rope_theta", theta)
    return bases


def _check_rotated_shares(config: Configuration, is_local: list[bool]) -> None:
    """See that half of a head is rotated in layers that see everything, and all of it in the others."""
    if not config.has("partial_rotary_factors"):
        raise UnsupportedModelError(f"{config.path}: lacks 'partial_rotary_factors': use a GGUF file")
    shares = _per_layer(config, "partial_rotary_factors", len(is_local))
    if shares != [1.0 if flag else 0.5 for flag in is_local]:
        raise UnsupportedModelError(f"{config.path}: 'partial_rotary_factors' other than 0.5 and 1 are not supported")


def _add_factors(tensors: Tensors, config: Configuration) -> Tensors:
    """Add Llama 3's frequency factors of the layers that see everything, filled up with ones to half a head.

    Raises:
        UnsupportedModelError: another kind of scaling.
    """
    rope = config.mapping("rope_scaling")
    if rope is None:
        return tensors
    if rope.values.get("rope_type") != "llama3":
        raise UnsupportedModelError(f"{config.path}: the rope scaling {shown(rope.values)} is not supported")
    is_local = [kind == _LOCAL for kind in _per_layer(config, "layer_types", config.integer("num_hidden_layers"))]
    head_dim = head_width(config)
    scaling = Llama3Scaling(
        base=_rope_bases(config, is_local)[False],
        rotary_dims=head_dim // 2,
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_context_tokens=rope.integer("original_max_position_embeddings"),
    )
    factors = np.ones(head_dim // 2, np.float32)
    factors[: head_dim // 4] = rope_factors(scaling).dequantise()
    return tensors | {_FACTORS: StoredTensor(_FACTORS, factors.shape, "F32", factors.view(np.uint8))}


FAMILIES: Final = {
    "Step3p5ForCausalLM": Family(
        "step35",
        layer_names={
            **ATTENTION_NAMES,
            **DENSE_NAMES,
            **PLAIN_NORMS,
            "self_attn.g_proj": "attn_gate",
            "moe.gate": "ffn_gate_inp",
            "moe.router_bias": "exp_probs_b.bias",
            "moe.gate_proj": "ffn_gate_exps",
            "moe.up_proj": "ffn_up_exps",
            "moe.down_proj": "ffn_down_exps",
            "share_expert.gate_proj": "ffn_gate_shexp",
            "share_expert.up_proj": "ffn_up_shexp",
            "share_expert.down_proj": "ffn_down_shexp",
        },
        read_metadata=_read_metadata,
        adjust=_add_factors,
        norms_store_offset=True,
        ignored=_DRAFTING,
    )
}
