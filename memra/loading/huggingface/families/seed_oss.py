"""Directories of the seed_oss family."""

from typing import Final

from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, DENSE_NAMES, Family

FAMILIES: Final = {
    "SeedOssForCausalLM": Family(
        "seed_oss",
        layer_names={**ATTENTION_NAMES, **DENSE_NAMES, "post_attention_layernorm": "post_attention_norm"},
        adjust=add_rope_factors,
    )
}
