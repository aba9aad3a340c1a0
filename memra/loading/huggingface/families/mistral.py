"""Directories of the mistral family: llama, with a window in old models; Ministral 3 with yarn and a temperature."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import Family, decoder_metadata
from memra.loading.huggingface.rotations import rope_parameters


def _read_mistral(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    if config.has("sliding_window"):
        metadata[f"{prefix}.attention.sliding_window"] = config.integer("sliding_window")
    return metadata


def _read_ministral3(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = _read_mistral(config, prefix)
    rope = rope_parameters(config)
    if rope is not None and rope.values.get("llama_4_scaling_beta"):
        metadata[f"{prefix}.attention.temperature_scale"] = rope.number("llama_4_scaling_beta")
    return metadata


FAMILIES: Final = {
    "MistralForCausalLM": Family("llama", read_metadata=_read_mistral, adjust=add_rope_factors),
    "Ministral3ForCausalLM": Family("mistral3", read_metadata=_read_ministral3, adjust=add_rope_factors),
}
