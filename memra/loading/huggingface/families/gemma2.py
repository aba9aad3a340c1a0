"""Directories of the gemma2 family: norms around each branch, caps, windows in every second layer."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.gemma3 import refuse_bidirectional, sliding_layers
from memra.loading.huggingface.family import ATTENTION_NAMES, DENSE_NAMES, POST_NORMS, Family, decoder_metadata

_SLIDING_WINDOW_PATTERN: Final = 2


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    """The defaults are those of Gemma2Config in transformers."""
    refuse_bidirectional(config)
    return decoder_metadata(config, prefix) | {
        "gemma2.attention.scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "gemma2.attention.sliding_window": config.integer("sliding_window", 4096),
        "gemma2.attention.sliding_window_pattern": sliding_layers(config, _SLIDING_WINDOW_PATTERN),
        "gemma2.attn_logit_softcapping": _cap(config, "attn_logit_softcapping", 50.0),
        "gemma2.final_logit_softcapping": _cap(config, "final_logit_softcapping", 30.0),
    }


def _cap(config: Configuration, key: str, default: float) -> float:
    """A cap; null switches it off, which is 0 in GGUF's keys."""
    return config.number(key, default) if config.has(key) or key not in config.values else 0.0


FAMILIES: Final = {
    "Gemma2ForCausalLM": Family(
        "gemma2",
        activations=("gelu_pytorch_tanh",),
        layer_names={**ATTENTION_NAMES, **DENSE_NAMES, **POST_NORMS},
        read_metadata=_read_metadata,
        norms_store_offset=True,
        ties_embeddings=True,
    )
}
