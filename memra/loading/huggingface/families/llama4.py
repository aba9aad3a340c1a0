"""Directories of the llama4 family: their text models, with experts stored inputs first."""

from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, PLAIN_NORMS, Family, Tensors, common_metadata
from memra.loading.huggingface.rotations import rope_metadata
from memra.loading.huggingface.tensor_edits import take_expert_columns

_ROPE_BASE: Final = 500_000.0
"""Llama4TextConfig's default in transformers."""
_QK_NORM_KEY: Final = "memra.qk_norm"
"""Metadata key without a counterpart in GGUF: whether queries and keys are normalised in rotated layers."""
_PERIOD: Final = 4
_FUSED: Final = ".ffn_gate_up_exps.weight"
_DOWN: Final = ".ffn_down_exps.weight"
_PREFIX: Final = "language_model."
_NAMES: Final = {
    **ATTENTION_NAMES,
    **PLAIN_NORMS,
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "feed_forward.router": "ffn_gate_inp",
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
    "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
    "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
}


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    is_tuned = config.values.get("attn_temperature_tuning", True)
    sizes: dict[str, object] = {
        "feed_forward_length": config.integer("intermediate_size_mlp"),
        "expert_feed_forward_length": config.integer("intermediate_size"),
        "expert_count": config.integer("num_local_experts"),
        "expert_used_count": config.integer("num_experts_per_tok", 1),
        "attention.sliding_window": config.integer("attention_chunk_size", 8192),
        "attention.sliding_window_pattern": _rotated_layers(config),
        "attention.temperature_length": config.integer("floor_scale", 8192),
        "attention.temperature_scale": config.number("attn_scale", 0.1) if is_tuned else 0.0,
    }
    metadata = common_metadata(config, prefix) | rope_metadata(config, prefix, default_base=_ROPE_BASE)
    metadata[_QK_NORM_KEY] = config.values.get("use_qk_norm", True) is True
    return metadata | {f"{prefix}.{key}": value for key, value in sizes.items()}


def _rotated_layers(config: Configuration) -> tuple[bool, ...]:
    """One entry per layer, True where queries and keys are rotated, which is where attention is in chunks.

    Raises:
        CorruptFileError: the list has another length.
        UnsupportedModelError: some layer is one without the other.
    """
    num_layers = config.integer("num_hidden_layers")
    interval = config.integer("no_rope_layer_interval", _PERIOD)
    flags = config.values.get("no_rope_layers") or [(layer + 1) % interval != 0 for layer in range(num_layers)]
    if not isinstance(flags, list) or len(flags) < num_layers:
        raise CorruptFileError(f"{config.path}: 'no_rope_layers' does not list {num_layers} layers: fetch it again")
    rotated = tuple(bool(flag) for flag in flags[:num_layers])
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and tuple(kind == "chunked_attention" for kind in kinds[:num_layers]) != rotated:
        raise UnsupportedModelError(
            f"{config.path}: memra runs llama4 models whose rotated layers attend in chunks, and no others"
        )
    return rotated


def _turn_experts(tensors: Tensors, config: Configuration) -> Tensors:
    """Cut gates and ups apart, and turn all experts' matrices."""
    width = config.integer("intermediate_size")
    turned: Tensors = {}
    for name, tensor in tensors.items():
        if name.endswith(_FUSED):
            for part, rows in (("gate", range(width)), ("up", range(width, 2 * width))):
                part_name = name.replace("gate_up", part)
                turned[part_name] = take_expert_columns(tensor, part_name, rows)
        elif name.endswith(_DOWN):
            turned[name] = take_expert_columns(tensor, name, range(tensor.shape[-1]))
        else:
            turned[name] = tensor
    return add_rope_factors(turned, config)


FAMILIES: Final = {
    "Llama4ForCausalLM": Family("llama4", layer_names=_NAMES, read_metadata=_read_metadata, adjust=_turn_experts),
    "Llama4ForConditionalGeneration": Family(
        "llama4",
        layer_names=_NAMES,
        global_names={
            f"{_PREFIX}model.embed_tokens.weight": "token_embd.weight",
            f"{_PREFIX}model.norm.weight": "output_norm.weight",
            f"{_PREFIX}lm_head.weight": "output.weight",
        },
        layers=f"{_PREFIX}model.layers.",
        read_metadata=_read_metadata,
        adjust=_turn_experts,
        text_config="text_config",
        ignored=("vision_model.", "multi_modal_projector."),
    ),
}
