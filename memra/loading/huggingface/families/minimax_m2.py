"""Directories of the minimax-m2 family: experts one by one, and a part of each head rotated."""

from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.family import ATTENTION_NAMES, PLAIN_NORMS, Family, common_metadata, head_width
from memra.loading.huggingface.rotations import rope_metadata, rope_parameters

_ROPE_BASE: Final = 5_000_000.0
"""MiniMaxM2Config's default in transformers."""
_SIGMOID: Final = 2
"""`expert_gating_func` of llama.cpp."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    if config.values.get("scoring_func", "sigmoid") != "sigmoid":
        raise UnsupportedModelError(f"{config.path}: memra runs minimax-m2 models with sigmoid routers, and no others")
    sizes: dict[str, object] = {
        "expert_count": config.integer("num_local_experts"),
        "expert_used_count": config.integer("num_experts_per_tok"),
        "expert_feed_forward_length": config.integer("intermediate_size"),
        "expert_gating_func": _SIGMOID,
        "rope.dimension_count": _rotary_dims(config),
    }
    metadata = common_metadata(config, prefix) | rope_metadata(config, prefix, default_base=_ROPE_BASE)
    return metadata | {f"{prefix}.{key}": value for key, value in sizes.items()}


def _rotary_dims(config: Configuration) -> int:
    """Elements of a head that are rotated: `rotary_dim` as published, a share of the head in transformers 5."""
    rope = rope_parameters(config)
    if rope is not None and rope.has("partial_rotary_factor"):
        return int(head_width(config) * rope.number("partial_rotary_factor"))
    return config.integer("rotary_dim", head_width(config))


FAMILIES: Final = {
    "MiniMaxM2ForCausalLM": Family(
        "minimax-m2",
        layer_names={
            **ATTENTION_NAMES,
            **PLAIN_NORMS,
            "block_sparse_moe.gate": "ffn_gate_inp",
            "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
            "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
            "block_sparse_moe.experts.*.w2": "ffn_down_exps",
            "block_sparse_moe.experts.*.w3": "ffn_up_exps",
        },
        read_metadata=_read_metadata,
    )
}
