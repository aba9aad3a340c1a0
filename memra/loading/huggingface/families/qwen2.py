"""Directories of the qwen2 family."""

from typing import Final

from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import Family

FAMILIES: Final = {"Qwen2ForCausalLM": Family("qwen2", adjust=add_rope_factors)}
