"""Mixtures of experts as configurations and directories of transformers describe them.

Trade: the names of experts' tensors and of the settings of softmax routers. Refuses to know families.
"""

from collections.abc import Mapping
from typing import Final

from memra.loading.huggingface.configuration import Configuration

EXPERT_NAMES: Final[Mapping[str, str]] = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
}
"""A router and its experts, one by one or stacked; `split_fused_experts` cuts the latter's fused matrix."""
SHARED_EXPERT_NAMES: Final[Mapping[str, str]] = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
"""The expert that every row goes through, and its gate."""


def mixture_metadata(config: Configuration, prefix: str, *, normalises: bool) -> dict[str, object]:
    """The sizes of the experts under GGUF's keys.

    Args:
        config: of the language model.
        prefix: the architecture in GGUF's terms.
        normalises: whether the chosen experts' weights sum to 1 where the configuration does not say.
    """
    normalised = config.values.get("norm_topk_prob")
    # transformers 5 writes the second name for some architectures whose files had the first.
    count = next((key for key in ("num_experts", "num_local_experts") if config.has(key)), "num_experts")
    metadata: dict[str, object] = {
        f"{prefix}.expert_count": config.integer(count),
        f"{prefix}.expert_used_count": config.integer("num_experts_per_tok"),
        f"{prefix}.expert_feed_forward_length": config.integer("moe_intermediate_size"),
        f"{prefix}.expert_weights_norm": normalises if normalised is None else normalised is True,
    }
    if config.has("shared_expert_intermediate_size"):
        metadata[f"{prefix}.expert_shared_feed_forward_length"] = config.integer("shared_expert_intermediate_size")
    return metadata
