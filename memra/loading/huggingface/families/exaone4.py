"""Directories of the exaone4 family: norms after each branch, windows in the large model."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.gemma3 import sliding_layers
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, DENSE_NAMES, POST_NORMS, Family, decoder_metadata

_SLIDING_WINDOW_PATTERN: Final = 4
"""Exaone4Config's default in transformers."""


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    if not config.has("sliding_window"):
        return metadata
    return metadata | {
        f"{prefix}.attention.sliding_window": config.integer("sliding_window"),
        f"{prefix}.attention.sliding_window_pattern": sliding_layers(config, _SLIDING_WINDOW_PATTERN),
    }


FAMILIES: Final = {
    "Exaone4ForCausalLM": Family(
        "exaone4",
        layer_names={**ATTENTION_NAMES, **DENSE_NAMES, **POST_NORMS},
        read_metadata=_read_metadata,
        adjust=add_rope_factors,
    )
}
