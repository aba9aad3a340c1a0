"""Directories of the llama family."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.family import Family, Tensors, head_width
from memra.loading.huggingface.rotations import llama3_factors


def add_rope_factors(tensors: Tensors, config: Configuration) -> Tensors:
    """Add Llama 3's frequency factors, which GGUF keeps as a tensor."""
    factors = llama3_factors(config, rotary_dims=head_width(config))
    return tensors if factors is None else tensors | {factors.name: factors}


FAMILIES: Final = {"LlamaForCausalLM": Family("llama", adjust=add_rope_factors)}
