"""Directories of the olmo2 family: OLMo 2, and OLMo 3 with windows and a plain rotation under them."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.gemma3 import sliding_layers
from memra.loading.huggingface.family import ATTENTION_NAMES, DENSE_NAMES, POST_NORMS, Family, common_metadata
from memra.loading.huggingface.rotations import rope_base, rope_metadata

_ROPE_BASE: Final = 500_000.0
"""Olmo3Config's default in transformers, and that of all published models."""
_SLIDING_WINDOW_PATTERN: Final = 4
_NAMES: Final = {**ATTENTION_NAMES, **DENSE_NAMES, **POST_NORMS}


def _read_olmo2(config: Configuration, prefix: str) -> dict[str, object]:
    return common_metadata(config, prefix) | rope_metadata(config, prefix, default_base=_ROPE_BASE)


def _read_olmo3(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = _read_olmo2(config, prefix)
    if not config.has("sliding_window"):
        return metadata
    return metadata | {
        f"{prefix}.attention.sliding_window": config.integer("sliding_window"),
        f"{prefix}.attention.sliding_window_pattern": sliding_layers(config, _SLIDING_WINDOW_PATTERN),
        f"{prefix}.rope.freq_base_swa": rope_base(config, _ROPE_BASE, "sliding_attention"),
    }


FAMILIES: Final = {
    "Olmo2ForCausalLM": Family("olmo2", layer_names=_NAMES, read_metadata=_read_olmo2),
    "Olmo3ForCausalLM": Family("olmo2", layer_names=_NAMES, read_metadata=_read_olmo3),
}
