"""Directories of BERT and RoBERTa: encoders, and the classifiers that are made of them.

RoBERTa's positions begin behind the padding token's number; its table is cut to begin with the first one, as GGUF's is.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from memra.errors import UnsupportedModelError
from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration, shown
from memra.loading.huggingface.family import Family, Tensors
from memra.loading.huggingface.pooling import RANK_POOLING
from memra.loading.huggingface.tensor_edits import take_rows

_EPS: Final = 1e-12
"""BertConfig's default in transformers."""
_ROBERTA_PADDING: Final = 1
"""RobertaConfig's default `pad_token_id` in transformers."""

_EMBEDDING_NAMES: Final[Mapping[str, str]] = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
    "embeddings.LayerNorm.gamma": "token_embd_norm.weight",
    "embeddings.LayerNorm.beta": "token_embd_norm.bias",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "attention.output.LayerNorm.gamma": "attn_output_norm.weight",
    "attention.output.LayerNorm.beta": "attn_output_norm.bias",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "output.LayerNorm.gamma": "layer_output_norm.weight",
    "output.LayerNorm.beta": "layer_output_norm.bias",
}
"""Files of TensorFlow's days call a norm's weight gamma and its bias beta."""
_BERT_CLASSIFIER: Final[Mapping[str, str]] = {"bert.pooler.dense": "cls", "classifier": "cls.output"}
_ROBERTA_CLASSIFIER: Final[Mapping[str, str]] = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}


def encoder_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    """The sizes that every encoder has, under GGUF's keys."""
    return {
        f"{prefix}.block_count": config.integer("num_hidden_layers", limit=MAX_LAYERS),
        f"{prefix}.context_length": config.integer("max_position_embeddings"),
        f"{prefix}.embedding_length": config.integer("hidden_size"),
        f"{prefix}.feed_forward_length": config.integer("intermediate_size"),
        f"{prefix}.vocab_size": config.integer("vocab_size"),
        f"{prefix}.attention.head_count": config.integer("num_attention_heads"),
        f"{prefix}.attention.causal": False,
    }


def _read_metadata(config: Configuration, prefix: str, *, classifies: bool = False) -> dict[str, object]:
    positions = config.values.get("position_embedding_type", "absolute")
    if positions != "absolute" or config.values.get("is_decoder") is True:
        raise UnsupportedModelError(
            f"{config.path}: memra runs encoders of this family with absolute positions, not 'position_embedding_type' "
            f"{shown(positions)} or 'is_decoder'"
        )
    metadata = encoder_metadata(config, prefix)
    metadata[f"{prefix}.attention.layer_norm_epsilon"] = config.number("layer_norm_eps", _EPS)
    return metadata | ({f"{prefix}.pooling_type": RANK_POOLING} if classifies else {})


def _read_roberta_metadata(config: Configuration, prefix: str, *, classifies: bool = False) -> dict[str, object]:
    metadata = _read_metadata(config, prefix, classifies=classifies)
    num_positions = config.integer("max_position_embeddings")
    return metadata | {f"{prefix}.context_length": num_positions - _first_position(config)}


def _cut_positions(tensors: Tensors, config: Configuration) -> Tensors:
    table = tensors.get("position_embd.weight")
    if table is None:
        return tensors
    rows = range(_first_position(config), table.shape[0])
    return tensors | {table.name: take_rows(table, table.name, rows)}


def _first_position(config: Configuration) -> int:
    padding = config.values.get("pad_token_id", _ROBERTA_PADDING)
    limit = config.integer("max_position_embeddings")
    if type(padding) is not int or not 0 <= padding < limit - 1:
        raise UnsupportedModelError(f"{config.path}: the padding token {shown(padding)} leaves no positions")
    return padding + 1


def _whole(parts: Mapping[str, str]) -> dict[str, str]:
    """Names of whole tensors, weights and biases, from names of parts."""
    return {f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in parts.items() for kind in ("weight", "bias")}


def _family(prefix: str = "", classifier: Mapping[str, str] | None = None, *, roberta: bool = False) -> Family:
    names = {f"{prefix}{name}": gguf_name for name, gguf_name in _EMBEDDING_NAMES.items()}
    pooler = (f"{prefix}pooler.",) if classifier is None or roberta else ()
    read = _read_roberta_metadata if roberta else _read_metadata
    return Family(
        "bert",
        activations=("gelu",),
        layer_names=_LAYER_NAMES,
        global_names=names | _whole(classifier or {}),
        layers=f"{prefix}encoder.layer.",
        read_metadata=partial(read, classifies=classifier is not None),
        adjust=_cut_positions if roberta else None,
        has_head=False,
        # Position numbers are counted anew; heads of the training task answer nothing about a text's meaning.
        ignored=(f"{prefix}embeddings.position_ids", *pooler, "cls.", "lm_head."),
    )


FAMILIES: Final = {
    "BertModel": _family(),
    "BertForMaskedLM": _family("bert."),
    "BertForSequenceClassification": _family("bert.", _BERT_CLASSIFIER),
    "RobertaModel": _family(roberta=True),
    "RobertaForSequenceClassification": _family("roberta.", _ROBERTA_CLASSIFIER, roberta=True),
    "XLMRobertaModel": _family(roberta=True),
    "XLMRobertaForSequenceClassification": _family("roberta.", _ROBERTA_CLASSIFIER, roberta=True),
}
