"""Directories of the smollm3 family: llama whose every fourth layer knows no positions."""

from typing import Final

from memra.errors import CorruptFileError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import Family, decoder_metadata

_NOPE_INTERVAL: Final = 4
"""SmolLM3Config's default in transformers."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    num_layers = metadata[f"{prefix}.block_count"]
    flags = config.values.get("no_rope_layers")  # the key's name notwithstanding, 1 is a layer that rotates
    if flags is None:
        interval = config.integer("no_rope_layer_interval", _NOPE_INTERVAL)
        flags = [(layer + 1) % interval != 0 for layer in range(config.integer("num_hidden_layers"))]
    if not isinstance(flags, list) or len(flags) != num_layers:
        raise CorruptFileError(f"{config.path}: 'no_rope_layers' does not list {num_layers} layers: fetch it again")
    return metadata | {f"{prefix}.attention.rope_pattern": tuple(bool(flag) for flag in flags)}


FAMILIES: Final = {
    "SmolLM3ForCausalLM": Family("smollm3", read_metadata=_read_metadata, adjust=add_rope_factors, ties_embeddings=True)
}
