"""Directories of the gpt-oss family: fused experts with interleaved gates, and sinks."""

from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.gemma3 import sliding_layers
from memra.loading.huggingface.family import ATTENTION_NAMES, Family, Tensors, common_metadata
from memra.loading.huggingface.rotations import rope_metadata
from memra.loading.huggingface.tensor_edits import take_columns, take_expert_columns, take_expert_rows

_ROPE_BASE: Final = 150_000.0
"""GptOssConfig's default in transformers."""
_ALPHA: Final = 1.702
_LIMIT: Final = 7.0
"""The constants of the clamped gate, which the program has built in."""
_FUSED: Final = ".ffn_gate_up_exps"


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    for key, value in (("swiglu_alpha", _ALPHA), ("swiglu_limit", _LIMIT)):
        if config.number(key, value) != value:
            raise UnsupportedModelError(f"{config.path}: memra runs gpt-oss models whose {key!r} is {value} only")
    width = config.integer("intermediate_size")
    return (
        common_metadata(config, prefix)
        | rope_metadata(config, prefix, default_base=_ROPE_BASE)
        | {
            f"{prefix}.attention.sliding_window": config.integer("sliding_window", 128),
            f"{prefix}.attention.sliding_window_pattern": sliding_layers(config, 2),
            f"{prefix}.expert_count": config.integer("num_local_experts"),
            f"{prefix}.expert_used_count": config.integer("num_experts_per_tok", 4),
            f"{prefix}.expert_feed_forward_length": width,
        }
    )


def _cut_experts(tensors: Tensors, config: Configuration) -> Tensors:
    """Cut gates and ups, whose rows take turns, apart.

    MXFP4 is stored with a row an output, other types with a row an input.
    """
    width = config.integer("intermediate_size")
    cut: Tensors = {}
    for name, tensor in tensors.items():
        parts = (("gate", range(0, 2 * width, 2)), ("up", range(1, 2 * width, 2)))
        stored_by_output = tensor.quant_type == "MXFP4"
        if name.endswith(f"{_FUSED}.bias"):
            cut |= {new: take_columns(tensor, new, rows) for part, rows in parts if (new := _renamed(name, part))}
        elif name.endswith(f"{_FUSED}.weight"):
            take = take_expert_rows if stored_by_output else take_expert_columns
            cut |= {new: take(tensor, new, rows) for part, rows in parts if (new := _renamed(name, part))}
        elif name.endswith(".ffn_down_exps.weight") and not stored_by_output:
            cut[name] = take_expert_columns(tensor, name, range(tensor.shape[-1]))
        else:
            cut[name] = tensor
    return cut


def _renamed(name: str, part: str) -> str:
    return name.replace(_FUSED, f".ffn_{part}_exps")


FAMILIES: Final = {
    "GptOssForCausalLM": Family(
        "gpt-oss",
        layer_names={
            **ATTENTION_NAMES,
            "self_attn.sinks": "attn_sinks.weight",
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
            "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        },
        read_metadata=_read_metadata,
        adjust=_cut_experts,
    )
}
