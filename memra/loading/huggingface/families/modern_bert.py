"""Directories of ModernBERT: encoders, and the classifiers that are made of them."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.huggingface.configuration import Configuration, shown
from memra.loading.huggingface.families.bert import encoder_metadata
from memra.loading.huggingface.family import Family
from memra.loading.huggingface.pooling import RANK_POOLING

_EPS: Final = 1e-5
_WINDOW_TOKENS: Final = 128
_PATTERN_LAYERS: Final = 3
_ROPE_BASE: Final = 160_000.0
_LOCAL_ROPE_BASE: Final = 10_000.0
"""ModernBertConfig's defaults in transformers, all of them."""
_CLASSIFIER_POOLINGS: Final[Mapping[str, int]] = {"mean": 1, "cls": 2}
"""To GGUF's numbers."""

_GLOBAL_NAMES: Final[Mapping[str, str]] = {
    "embeddings.tok_embeddings.weight": "token_embd.weight",
    "embeddings.norm.weight": "token_embd_norm.weight",
    "embeddings.norm.bias": "token_embd_norm.bias",
    "final_norm.weight": "output_norm.weight",
    "final_norm.bias": "output_norm.bias",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}
_CLASSIFIER_NAMES: Final[Mapping[str, str]] = {
    "head.dense.weight": "cls.weight",
    "head.dense.bias": "cls.bias",
    "head.norm.weight": "cls.norm.weight",
    "head.norm.bias": "cls.norm.bias",
    "classifier.weight": "cls.output.weight",
    "classifier.bias": "cls.output.bias",
}


def _read_metadata(config: Configuration, prefix: str, *, classifies: bool = False) -> dict[str, object]:
    metadata = encoder_metadata(config, prefix) | {
        f"{prefix}.attention.layer_norm_epsilon": config.number("norm_eps", _EPS),
        f"{prefix}.attention.sliding_window": config.integer("local_attention", _WINDOW_TOKENS),
        f"{prefix}.attention.sliding_window_pattern": _local_layers(config),
        f"{prefix}.rope.freq_base": _rope_base(config, "full_attention", "global_rope_theta", _ROPE_BASE),
        f"{prefix}.rope.freq_base_swa": _rope_base(config, "sliding_attention", "local_rope_theta", _LOCAL_ROPE_BASE),
        f"{prefix}.hidden_activation": str(config.values.get("hidden_activation", "gelu")),
    }
    return metadata | (_classifier_metadata(config, prefix) if classifies else {})


def _classifier_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    pooling = config.values.get("classifier_pooling", "cls")
    activation = config.values.get("classifier_activation", "gelu")
    if not isinstance(pooling, str) or pooling not in _CLASSIFIER_POOLINGS or activation != "gelu":
        raise UnsupportedModelError(
            f"{config.path}: a classifier with 'classifier_pooling' {shown(pooling)} and 'classifier_activation' "
            f"{shown(activation)} is not supported for {prefix}"
        )
    return {
        f"{prefix}.pooling_type": RANK_POOLING,
        f"{prefix}.classifier.pooling_type": _CLASSIFIER_POOLINGS[pooling],
    }


def _local_layers(config: Configuration) -> int | tuple[bool, ...]:
    """A period whose first layer sees everything, or a flag for every layer; both are GGUF's."""
    layer_types = config.values.get("layer_types")
    if layer_types is None:
        return config.integer("global_attn_every_n_layers", _PATTERN_LAYERS)
    if not isinstance(layer_types, list) or not set(map(str, layer_types)) <= {"full_attention", "sliding_attention"}:
        raise CorruptFileError(f"{config.path}: 'layer_types' is no list of layer types: fetch the file again")
    return tuple(kind == "sliding_attention" for kind in layer_types)


def _rope_base(config: Configuration, layer_type: str, older_key: str, default: float) -> float:
    parameters = config.mapping("rope_parameters")
    rope = None if parameters is None else parameters.mapping(layer_type)
    scaling = config.values.get("rope_scaling") or ("default" if rope is None else rope.values.get("rope_type"))
    if scaling not in ("default", None):  # a damaged file may hold what no set takes
        raise UnsupportedModelError(f"{config.path}: the rope scaling {shown(scaling)} is not supported")
    return config.number(older_key, default) if rope is None else rope.number("rope_theta", default)


def _family(prefix: str = "", *, classifies: bool = False) -> Family:
    names = {f"{prefix}{name}": gguf_name for name, gguf_name in _GLOBAL_NAMES.items()}
    return Family(
        "modern-bert",
        activations=("gelu", "silu"),
        layer_names=_LAYER_NAMES,
        global_names={**names, **_CLASSIFIER_NAMES} if classifies else names,
        layers=f"{prefix}layers.",
        read_metadata=partial(_read_metadata, classifies=classifies),
        has_head=False,
        ignored=() if classifies else ("head.", "decoder."),
    )


FAMILIES: Final = {
    "ModernBertModel": _family(),
    "ModernBertForMaskedLM": _family("model."),
    "ModernBertForSequenceClassification": _family("model.", classifies=True),
}
