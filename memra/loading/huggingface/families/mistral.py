"""Directories of the mistral family: llama, with a window in old models; Mixtral with experts; Mistral 3 with yarn.

A directory of the third kind that holds a tower for images opens as its text model.
"""

from dataclasses import replace
from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, GLOBAL_NAMES, PLAIN_NORMS, Family, decoder_metadata
from memra.loading.huggingface.rotations import rope_parameters


def _read_mistral(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    if config.has("sliding_window"):
        metadata[f"{prefix}.attention.sliding_window"] = config.integer("sliding_window")
    return metadata


def _read_mistral3(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = _read_mistral(config, prefix)
    rope = rope_parameters(config)
    if rope is not None and rope.values.get("llama_4_scaling_beta"):
        metadata[f"{prefix}.attention.temperature_scale"] = rope.number("llama_4_scaling_beta")
    return metadata


def _read_mixtral(config: Configuration, prefix: str) -> dict[str, object]:
    return _read_mistral(config, prefix) | {
        f"{prefix}.expert_count": config.integer("num_local_experts"),
        f"{prefix}.expert_used_count": config.integer("num_experts_per_tok"),
    }


_MISTRAL3: Final = Family("mistral3", read_metadata=_read_mistral3, adjust=add_rope_factors)
FAMILIES: Final = {
    "MistralForCausalLM": Family("llama", read_metadata=_read_mistral, adjust=add_rope_factors),
    "MixtralForCausalLM": Family(
        "llama",
        layer_names={
            **ATTENTION_NAMES,
            **PLAIN_NORMS,
            "block_sparse_moe.gate": "ffn_gate_inp",
            "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
            "block_sparse_moe.experts.*.w2": "ffn_down_exps",
            "block_sparse_moe.experts.*.w3": "ffn_up_exps",
        },
        read_metadata=_read_mixtral,
        adjust=add_rope_factors,
    ),
    "Ministral3ForCausalLM": _MISTRAL3,
    "Mistral3ForConditionalGeneration": replace(
        _MISTRAL3,
        text_config="text_config",
        layers="language_model.model.layers.",
        global_names={f"language_model.{name}": gguf_name for name, gguf_name in GLOBAL_NAMES.items()},
        ignored=("vision_tower.", "multi_modal_projector."),
    ),
}
