"""Directories of the hunyuan-dense family: `dynamic` scaling with an alpha, which is nothing but a larger base."""

from typing import Final

from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import LLAMA_NAMES, Family, common_metadata, head_width
from memra.loading.huggingface.rotations import rope_base, rope_metadata, rope_parameters


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = common_metadata(config, prefix)
    rope = rope_parameters(config)
    if rope is None or not rope.values.get("alpha"):
        return metadata | rope_metadata(config, prefix)
    width = head_width(config)  # the exponent is `_compute_ntk_alpha_rope_parameters`'s of transformers
    stretched = rope_base(config) * rope.number("alpha") ** (width / (width - 2))
    return metadata | {f"{prefix}.rope.freq_base": stretched}


FAMILIES: Final = {
    "HunYuanDenseV1ForCausalLM": Family(
        "hunyuan-dense",
        layer_names={
            **LLAMA_NAMES,
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
        },
        read_metadata=_read_metadata,
        adjust=add_rope_factors,
    )
}
