"""Directories of the glm4 and glm4moe families: a part of each head is rotated; experts, and layers that draft."""

from typing import Final

from memra.loading.fused_experts import split_fused_experts
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.family import (
    ATTENTION_NAMES,
    DENSE_NAMES,
    Family,
    decoder_metadata,
    rotary_width,
)
from memra.loading.huggingface.mixtures import EXPERT_NAMES

_ROTATED_SHARE: Final = 0.5
"""Default of Glm4Config and Glm4MoeConfig in transformers."""
_DRAFT_NAMES: Final = {
    "embed_tokens": "nextn.embed_tokens",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "eh_proj": "nextn.eh_proj",
    "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head",
}
"""What a layer that guesses further tokens has besides."""


def _read_glm4(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    return metadata | {f"{prefix}.rope.dimension_count": rotary_width(config, _ROTATED_SHARE)}


def _read_glm4moe(config: Configuration, prefix: str) -> dict[str, object]:
    count = "n_routed_experts" if config.has("n_routed_experts") else "num_local_experts"
    metadata = _read_glm4(config, prefix) | {
        f"{prefix}.expert_count": config.integer(count),
        f"{prefix}.expert_used_count": config.integer("num_experts_per_tok"),
        f"{prefix}.expert_feed_forward_length": config.integer("moe_intermediate_size"),
        f"{prefix}.expert_shared_count": config.integer("n_shared_experts", 1),
        f"{prefix}.expert_group_count": config.integer("n_group", 1),
        f"{prefix}.expert_group_used_count": config.integer("topk_group", 1),
        f"{prefix}.expert_weights_norm": config.values.get("norm_topk_prob") is not False,
        f"{prefix}.expert_weights_scale": config.number("routed_scaling_factor", 1.0),
    }
    if config.values.get("first_k_dense_replace") != 0:
        metadata[f"{prefix}.leading_dense_block_count"] = config.integer("first_k_dense_replace", 1)
    drafts = next((key for key in ("num_nextn_predict_layers", "num_mtp_layers") if config.values.get(key)), None)
    if drafts is not None:
        num_drafts = config.integer(drafts)
        metadata[f"{prefix}.nextn_predict_layers"] = num_drafts
        metadata[f"{prefix}.block_count"] = config.integer("num_hidden_layers") + num_drafts
    return metadata


FAMILIES: Final = {
    "Glm4ForCausalLM": Family(
        "glm4",
        layer_names={
            **ATTENTION_NAMES,
            "post_self_attn_layernorm": "post_attention_norm",
            "post_attention_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        read_metadata=_read_glm4,
    ),
    "Glm4MoeForCausalLM": Family(
        "glm4moe",
        layer_names={
            **ATTENTION_NAMES,
            **DENSE_NAMES,
            **EXPERT_NAMES,
            **_DRAFT_NAMES,
            "post_attention_layernorm": "post_attention_norm",
            "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
            "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp",
        },
        read_metadata=_read_glm4moe,
        adjust=lambda tensors, _: split_fused_experts(tensors),
    ),
}
