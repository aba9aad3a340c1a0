"""Directories of DeepSeek V2 and V3, of GLM 4.7 Flash, and of the models that share their code."""

from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration
from memra.loading.huggingface.family import DENSE_NAMES, PLAIN_NORMS, Family
from memra.loading.huggingface.rotations import rope_metadata, rope_parameters

_LOG_SLOPE: Final = 0.1
"""What llama.cpp's converter multiplies `mscale_all_dim` by, in this family alone."""
_GATING: Final = {"softmax": 1, "sigmoid": 2}
"""`scoring_func` in llama.cpp's numbers."""
_NAMES: Final = {
    **DENSE_NAMES,
    **PLAIN_NORMS,
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.o_proj": "attn_output",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
_DRAFTING: Final = "model.layers.61."
"""The layer behind V3's last, which drafts further tokens; transformers leaves it out by the same name."""
_GLM_DRAFTING: Final = "model.layers.47."
"""The same of GLM 4.7 Flash."""


def _read_metadata(config: Configuration, prefix: str, *, scoring: str) -> dict[str, object]:
    if config.values.get("rope_interleave") is False:
        raise UnsupportedModelError(f"{config.path}: 'rope_interleave' false is not supported: use a GGUF file")
    rotary_dim = config.integer("qk_rope_head_dim")
    sizes: dict[str, object] = {
        "block_count": config.integer("num_hidden_layers", limit=MAX_LAYERS),
        "context_length": config.integer("max_position_embeddings"),
        "embedding_length": config.integer("hidden_size"),
        "feed_forward_length": config.integer("intermediate_size"),
        "vocab_size": config.integer("vocab_size"),
        "attention.head_count": config.integer("num_attention_heads"),
        "attention.key_length": config.integer("qk_nope_head_dim") + rotary_dim,
        "attention.value_length": config.integer("v_head_dim"),
        "attention.kv_lora_rank": config.integer("kv_lora_rank"),
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        "rope.dimension_count": rotary_dim,
    }
    if config.has("q_lora_rank"):
        sizes["attention.q_lora_rank"] = config.integer("q_lora_rank")
    rope = rope_parameters(config)
    if rope is not None and rope.values.get("mscale_all_dim"):
        sizes["rope.scaling.yarn_log_multiplier"] = _LOG_SLOPE * rope.number("mscale_all_dim")
    sizes |= _mixture_metadata(config, scoring=scoring)
    return {f"{prefix}.{key}": value for key, value in sizes.items()} | rope_metadata(config, prefix)


def _mixture_metadata(config: Configuration, *, scoring: str) -> dict[str, object]:
    """The experts' keys; none where all layers are dense."""
    if not config.has("n_routed_experts"):
        return {}
    scoring = str(config.values.get("scoring_func") or scoring)
    if scoring not in _GATING:
        raise UnsupportedModelError(f"{config.path}: the router {scoring!r} is not supported: use another model")
    if config.values.get("moe_layer_freq", 1) != 1:
        raise UnsupportedModelError(f"{config.path}: memra runs models with experts in all layers after the dense ones")
    metadata: dict[str, object] = {
        "expert_count": config.integer("n_routed_experts"),
        "expert_used_count": config.integer("num_experts_per_tok"),
        "expert_feed_forward_length": config.integer("moe_intermediate_size"),
        "expert_shared_count": config.values.get("n_shared_experts") or 0,
        "expert_gating_func": _GATING[scoring],
        "expert_weights_norm": config.values.get("norm_topk_prob") is True,
        "expert_weights_scale": config.number("routed_scaling_factor", 1.0),
        "leading_dense_block_count": _num_dense(config),
    }
    if config.values.get("topk_method") != "greedy" and config.has("n_group"):
        metadata["expert_group_count"] = config.integer("n_group")
        metadata["expert_group_used_count"] = config.integer("topk_group")
    return metadata


def _num_dense(config: Configuration) -> int:
    """How many layers come before those with experts: by a number, or by a list in newer configurations.

    Raises:
        UnsupportedModelError: a dense layer behind one with experts.
    """
    kinds = config.values.get("mlp_layer_types")
    if config.has("first_k_dense_replace") or not isinstance(kinds, list):
        count = config.values.get("first_k_dense_replace") or 0
        return config.integer("first_k_dense_replace") if count else 0
    count = kinds.count("dense")
    if "dense" in kinds[count:]:
        raise UnsupportedModelError(f"{config.path}: dense layers behind those with experts are not supported")
    return count


def _read_v2(config: Configuration, prefix: str) -> dict[str, object]:
    return _read_metadata(config, prefix, scoring="softmax")


def _read_v3(config: Configuration, prefix: str) -> dict[str, object]:
    return _read_metadata(config, prefix, scoring="sigmoid")


FAMILIES: Final = {
    "DeepseekV2ForCausalLM": Family("deepseek2", layer_names=_NAMES, read_metadata=_read_v2),
    "DeepseekV3ForCausalLM": Family("deepseek2", layer_names=_NAMES, read_metadata=_read_v3, ignored=(_DRAFTING,)),
    "Glm4MoeLiteForCausalLM": Family("deepseek2", layer_names=_NAMES, read_metadata=_read_v3, ignored=(_GLM_DRAFTING,)),
}
