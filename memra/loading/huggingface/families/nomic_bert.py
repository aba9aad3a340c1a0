"""Directories of nomic-bert, whose settings have the names of the authors' own code or those of transformers."""

from collections.abc import Mapping
from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration, shown
from memra.loading.huggingface.families.bert import encoder_metadata
from memra.loading.huggingface.family import Family
from memra.loading.huggingface.rotations import rope_base, rope_type

_ROPE_BASE: Final = 1000.0
"""NomicBertConfig's default in transformers."""
_TRAINED_TOKENS: Final = 2048
"""Default of `max_trained_positions` in the authors' code; longer texts need a scaling that memra does not apply."""
_EPS: Final = 1e-12
_NEWER_NAMES: Final[Mapping[str, str]] = {
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_head": "num_attention_heads",
    "rotary_emb_base": "rope_theta",
    "layer_norm_epsilon": "layer_norm_eps",
}
"""From the authors' names to those of transformers."""
_FIXED: Final[Mapping[str, tuple[object, ...]]] = {
    "activation_function": ("swiglu",),
    "prenorm": (False,),
    "rotary_emb_fraction": (1, 1.0),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "moe_every_n_layers": (0, -1),
    "use_rms_norm": (False,),
    "parallel_block": (False,),
}
"""Settings that have one value in every model that memra runs; null is as good as absent."""
_GLOBAL_NAMES: Final[Mapping[str, str]] = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "emb_ln.weight": "token_embd_norm.weight",
    "emb_ln.bias": "token_embd_norm.bias",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
}


def _read_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    for key, accepted in _FIXED.items():
        value = config.values.get(key)
        if value is not None and value not in accepted:
            raise UnsupportedModelError(f"{config.path}: {key!r} {shown(value)} is not supported for {prefix}")
    rope_type(config, ("default",))
    values = {_NEWER_NAMES.get(key, key): value for key, value in config.values.items()}
    settings = Configuration(values, config.path)
    context = min(
        settings.integer("max_position_embeddings"), settings.integer("max_trained_positions", _TRAINED_TOKENS)
    )
    return encoder_metadata(settings, prefix) | {
        f"{prefix}.context_length": context,
        f"{prefix}.attention.layer_norm_epsilon": settings.number("layer_norm_eps", _EPS),
        f"{prefix}.rope.freq_base": rope_base(settings, _ROPE_BASE),
    }


FAMILIES: Final = {
    "NomicBertModel": Family(
        "nomic-bert",
        layer_names=_LAYER_NAMES,
        global_names=_GLOBAL_NAMES,
        layers="encoder.layers.",
        read_metadata=_read_metadata,
        has_head=False,
        ignored=("pooler.",),
    )
}
