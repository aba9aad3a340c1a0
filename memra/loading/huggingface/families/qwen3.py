"""Directories of the qwen3 families, dense and with experts."""

from typing import Final

from memra.loading.fused_experts import split_fused_experts
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, PLAIN_NORMS, Family, Tensors, decoder_metadata
from memra.loading.huggingface.mixtures import EXPERT_NAMES, mixture_metadata


def _mixture_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    # Qwen3MoeConfig's default is not to normalise, though all published models do.
    return decoder_metadata(config, prefix) | mixture_metadata(config, prefix, normalises=False)


def _adjust_mixture(tensors: Tensors, config: Configuration) -> Tensors:
    return add_rope_factors(split_fused_experts(tensors), config)


_QWEN3: Final = Family("qwen3", adjust=add_rope_factors)

FAMILIES: Final = {
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3Model": _QWEN3,
    "Qwen3MoeForCausalLM": Family(
        "qwen3moe",
        layer_names={**ATTENTION_NAMES, **PLAIN_NORMS, **EXPERT_NAMES},
        read_metadata=_mixture_metadata,
        adjust=_adjust_mixture,
    ),
}
