"""Directories of the qwen3next, qwen35 and qwen35moe families: delta nets beside gated attention."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from memra.loading.fused_experts import split_fused_experts
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.delta_nets import DELTA_NAMES, adjust_delta_nets, delta_metadata
from memra.loading.huggingface.family import DENSE_NAMES, GLOBAL_NAMES, Family, Tensors
from memra.loading.huggingface.mixtures import (
    EXPERT_NAMES,
    SHARED_EXPERT_NAMES,
    mixture_metadata,
)

_ORDER_KEY: Final = "memra.delta_value_heads"
"""Metadata key without a counterpart in GGUF: `grouped` where value heads keep the order of this format."""
_IGNORED: Final = ("mtp.", "model.mtp.", "model.visual.", "visual.")
"""Prediction of further tokens for speculation, and the tower for images."""


def _read_mixture(config: Configuration, prefix: str) -> dict[str, object]:
    config = _with_dense_width(config)
    return delta_metadata(config, prefix) | mixture_metadata(config, prefix, normalises=True)


def _read_qwen35(config: Configuration, prefix: str) -> dict[str, object]:
    return delta_metadata(config, prefix) | {_ORDER_KEY: "grouped"}


def _read_qwen35_mixture(config: Configuration, prefix: str) -> dict[str, object]:
    return _read_mixture(config, prefix) | {_ORDER_KEY: "grouped"}


def _with_dense_width(config: Configuration) -> Configuration:
    """Qwen 3.5's mixtures have no dense layer, and no width of one; GGUF's keys have one in any case."""
    if config.has("intermediate_size"):
        return config
    width = config.values.get("moe_intermediate_size")
    return Configuration({**config.values, "intermediate_size": width}, config.path)


def _adjust_mixture(tensors: Tensors, config: Configuration) -> Tensors:
    return adjust_delta_nets(split_fused_experts(tensors), config)


_MIXTURE_NAMES: Final = {**DELTA_NAMES, **EXPERT_NAMES, **SHARED_EXPERT_NAMES}
_QWEN3NEXT: Final = Family(
    "qwen3next",
    layer_names=_MIXTURE_NAMES,
    read_metadata=_read_mixture,
    adjust=_adjust_mixture,
    norms_store_offset=True,
    ignored=_IGNORED,
)
_QWEN35: Final = Family(
    "qwen35",
    layer_names={**DELTA_NAMES, **DENSE_NAMES},
    read_metadata=_read_qwen35,
    adjust=adjust_delta_nets,
    norms_store_offset=True,
    ignored=_IGNORED,
)
_QWEN35MOE: Final = replace(_QWEN3NEXT, gguf_name="qwen35moe", read_metadata=_read_qwen35_mixture)


def _with_tower(family: Family) -> Family:
    """The same language model beside a tower for images, under names of its own."""
    names: Mapping[str, str] = {
        name.replace("model.", "model.language_model.", 1): gguf_name for name, gguf_name in GLOBAL_NAMES.items()
    }
    return replace(family, global_names=names, layers="model.language_model.layers.", text_config="text_config")


FAMILIES: Final = {
    "Qwen3NextForCausalLM": _QWEN3NEXT,
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5MoeForCausalLM": _QWEN35MOE,
    "Qwen3_5ForConditionalGeneration": _with_tower(_QWEN35),
    "Qwen3_5MoeForConditionalGeneration": _with_tower(_QWEN35MOE),
}
