"""Tensors of a safetensors directory, renamed and adjusted to GGUF's conventions.

Called by `safetensors_directory`. Knows the tensor names of the architectures in `huggingface_config.FAMILIES` and
refuses a name it does not know, since a weight left out changes what the model says.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.checkpoint import StoredTensor
from memra.loading.huggingface_config import Family, Llama3Scaling
from memra.loading.model_tensor import ModelTensor
from memra.loading.safetensors_file import with_values_changed

_GLOBAL_NAMES: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PLAIN_NORMS: Final = {"post_attention_layernorm": "ffn_norm"}
_POST_NORMS: Final = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER_TENSOR: Final = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<part>[a-z_.]+)\.(?P<kind>weight|bias)")
_RECOMPUTED_SUFFIX: Final = ".rotary_emb.inv_freq"
"""Old files carry the rope frequencies, which follow from the configuration."""


def gguf_tensors(
    tensors: Mapping[str, ModelTensor], family: Family, *, tied_embeddings: bool, path: Path
) -> dict[str, ModelTensor]:
    """All tensors under GGUF's names.

    The head is left out where the configuration ties it to the embeddings, stored or not. Norms that apply `1 + w`
    come out as `1 + w` in float32.

    Raises:
        CorruptFileError: there is neither a head nor a word that the embeddings serve as one.
        UnsupportedModelError: a tensor has a name that the family does not know.
    """
    if not tied_embeddings and "lm_head.weight" not in tensors:
        raise CorruptFileError(
            f"{path}: holds no 'lm_head.weight', and config.json does not tie the head to the embeddings: "
            "fetch both again"
        )
    renamed: dict[str, ModelTensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(_RECOMPUTED_SUFFIX) or (tied_embeddings and name == "lm_head.weight"):
            continue
        gguf_name = _gguf_name(name, family)
        if gguf_name is None:
            raise UnsupportedModelError(
                f"{path}: the tensor {name!r} belongs to no part of a {family.gguf_name} model that memra runs"
            )
        adjusted = tensor
        if family.norms_store_offset and gguf_name.endswith("norm.weight"):
            adjusted = with_values_changed(tensor, lambda values: values + np.float32(1))
        renamed[gguf_name] = adjusted.renamed(gguf_name)
    return renamed


def rope_factors(scaling: Llama3Scaling) -> StoredTensor:
    """The tensor `rope_freqs.weight`, `[rotary_dims / 2]`, that divides the rotation frequencies.

    The formula is the one of `rope_type: llama3` in transformers: short wavelengths stay, long ones are stretched by
    `factor`, those between are blended.
    """
    exponents = np.arange(0, scaling.rotary_dims, 2, dtype=np.float64) / scaling.rotary_dims
    wavelengths = 2 * math.pi * scaling.base**exponents
    ratio = scaling.original_context_tokens / wavelengths
    span = scaling.high_freq_factor - scaling.low_freq_factor
    blend = np.clip((ratio - scaling.low_freq_factor) / span, 0.0, 1.0)
    factors = (1 / ((1 - blend) / scaling.factor + blend)).astype(np.float32)
    return StoredTensor("rope_freqs.weight", factors.shape, "F32", factors.view(np.uint8))


def _gguf_name(name: str, family: Family) -> str | None:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return None
    norms = _POST_NORMS if family.post_norms else _PLAIN_NORMS
    part = _LAYER_NAMES.get(match["part"]) or norms.get(match["part"])
    return f"blk.{int(match['layer'])}.{part}.{match['kind']}" if part else None
