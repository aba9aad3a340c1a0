"""Which architectures of transformers there are, by the name that config.json gives."""

from collections.abc import Mapping
from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families import (
    bert,
    deepseek,
    exaone4,
    gemma2,
    gemma3,
    gemma4,
    glm4,
    gpt_oss,
    granite,
    hunyuan_dense,
    llama,
    llama4,
    minimax_m2,
    mistral,
    modern_bert,
    nomic_bert,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    qwen3next,
    seed_oss,
    smollm3,
    step35,
)
from memra.loading.huggingface.family import ROPE_STYLE_KEY, Family

_MODULES: Final = (
    bert,
    deepseek,
    exaone4,
    gemma2,
    gemma3,
    gemma4,
    glm4,
    gpt_oss,
    granite,
    hunyuan_dense,
    llama,
    llama4,
    minimax_m2,
    mistral,
    modern_bert,
    nomic_bert,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    qwen3next,
    seed_oss,
    smollm3,
    step35,
)
FAMILIES: Final[Mapping[str, Family]] = {
    name: family for module in _MODULES for name, family in module.FAMILIES.items()
}
"""By the first entry of `architectures` in config.json."""


def family_of(config: Configuration) -> Family:
    """The architecture that the configuration names.

    Raises:
        UnsupportedModelError: memra does not run it.
    """
    names = config.values.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.values.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise UnsupportedModelError(
            f"{config.path}: the architecture {name!r} is not supported; supported are {', '.join(sorted(FAMILIES))}"
        )
    return family


def text_configuration(config: Configuration, family: Family) -> Configuration:
    """The part of the configuration that describes the language model, checked for what no program here computes.

    Raises:
        UnsupportedModelError: an activation that the family's program does not compute.
    """
    nested = config.mapping(family.text_config) if family.text_config else None
    config = config if nested is None else nested
    activation = config.values.get("hidden_act") or config.values.get("hidden_activation")
    if family.activations and activation is not None and activation not in family.activations:
        raise UnsupportedModelError(
            f"{config.path}: the activation {activation!r} is not supported for {family.gguf_name}"
        )
    if config.values.get("use_sliding_window") is True:
        raise UnsupportedModelError(f"{config.path}: 'use_sliding_window' is not supported for {family.gguf_name}")
    return config


def gguf_metadata(config: Configuration, family: Family) -> dict[str, object]:
    """The configuration in GGUF's keys, plus `memra.rope_style`."""
    common = {"general.architecture": family.gguf_name, ROPE_STYLE_KEY: "halves"}
    return common | family.read_metadata(config, family.gguf_name)
