"""Encoders of BERT's line and the classifiers made of them, against transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.layers.operators import Attention
from memra.layers.program import Pooling
from memra.loading.checkpoint import Checkpoint
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.models.encoder_harness import check_encoder
from tests.models.family_harness import perturb, program_of, save_directory

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
MODERN_SIZES: dict[str, Any] = SIZES | {
    "num_hidden_layers": 4,
    "local_attention": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}


def _bert(kind: str = "BertModel", **changes: Any) -> Any:
    return getattr(transformers, kind)(transformers.BertConfig(**SIZES | changes))


def _roberta(kind: str, **changes: Any) -> Any:
    return getattr(transformers, kind)(transformers.XLMRobertaConfig(**SIZES | changes))


def _nomic(**changes: Any) -> Any:
    return transformers.NomicBertModel(transformers.NomicBertConfig(**SIZES | changes))


def _modern(kind: str = "ModernBertModel", **changes: Any) -> Any:
    return getattr(transformers, kind)(transformers.ModernBertConfig(**MODERN_SIZES | changes))


MODELS: dict[str, Callable[[], Any]] = {
    "bert": _bert,
    "bert, one token type": lambda: _bert(type_vocab_size=1),
    "bert, classifier": lambda: _bert("BertForSequenceClassification", num_labels=1),
    "xlm-roberta": lambda: _roberta("XLMRobertaModel"),
    "xlm-roberta, classifier": lambda: _roberta("XLMRobertaForSequenceClassification", num_labels=3),
    "nomic-bert": _nomic,
    "modern-bert": _modern,
    "modern-bert, silu": lambda: _modern(hidden_activation="silu", num_hidden_layers=2),
    "modern-bert, biases": lambda: _modern(norm_bias=True, attention_bias=True, mlp_bias=True, num_hidden_layers=2),
    "modern-bert, classifier": lambda: _modern("ModernBertForSequenceClassification", num_labels=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_encoder_is_what_transformers_computes(name: str, tmp_path: Path):
    torch.manual_seed(0)
    model = MODELS[name]()
    perturb(model)
    check_encoder(model, tmp_path)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return save_directory(_bert(), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def modern_bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return save_directory(_modern(), tmp_path_factory.mktemp("modern-bert"))


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}


@pytest.mark.parametrize(
    ("value", "pooling"),
    [(None, Pooling.MEAN), (1, Pooling.MEAN), (2, Pooling.CLS), (3, Pooling.LAST)],
)
def test_the_pooling_is_what_the_file_says_and_else_the_mean(bert: Checkpoint, value: int | None, pooling: Pooling):
    metadata = {**bert.metadata, **({} if value is None else {"bert.pooling_type": value})}
    assert build_program("bert", metadata, _shapes(bert)).pooling is pooling


@pytest.mark.parametrize(
    ("key", "value", "meaning"),
    [
        ("pooling_type", 0, "an embedding of every token"),
        ("pooling_type", 7, "pooling of type 7"),
        ("attention.causal", True, "causal attention"),
        ("attention.max_alibi_bias", 8.0, "ALiBi"),
        ("expert_count", 8, "mixture of experts"),
    ],
)
def test_what_no_encoder_computes_is_refused_by_name(bert: Checkpoint, key: str, value: object, meaning: str):
    with pytest.raises(UnsupportedModelError, match=f"bert.{key} is .*{meaning}"):
        build_program("bert", {**bert.metadata, f"bert.{key}": value}, _shapes(bert))


def test_a_tensor_that_the_program_does_not_read_is_refused_by_name(bert: Checkpoint):
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q_norm\.weight"):
        build_program("bert", bert.metadata, _shapes(bert) | {"blk.0.attn_q_norm.weight": (64,)})


def test_a_table_of_positions_shorter_than_the_context_is_refused_by_name(bert: Checkpoint):
    with pytest.raises(CorruptFileError, match=r"position_embd\.weight"):
        build_program("bert", {**bert.metadata, "bert.context_length": 131}, _shapes(bert))


def test_every_third_layer_of_modern_bert_sees_everything_where_the_file_gives_no_pattern(modern_bert: Checkpoint):
    metadata = {**modern_bert.metadata}
    del metadata["modern-bert.attention.sliding_window_pattern"]
    program = build_program("modern-bert", metadata, _shapes(modern_bert))
    windows = [operator.window for operator in program if isinstance(operator, Attention)]
    assert windows == [None, 16, 16, None]


@pytest.mark.parametrize("name", ["bert", "modern-bert"])
def test_all_layers_of_an_encoder_keep_keys_and_values_in_one_place(name: str, request: pytest.FixtureRequest):
    program = program_of(request.getfixturevalue(name.replace("-", "_")))
    assert len(program.kv_layers) == 1
    assert {operator.layer for operator in program if isinstance(operator, Attention)} == {0}


def test_a_classifier_of_the_mean_row_is_refused_by_name(tmp_path: Path):
    model = _modern("ModernBertForSequenceClassification", num_labels=1, classifier_pooling="mean")
    with pytest.raises(UnsupportedModelError, match=r"classifier\.pooling_type"):
        program_of(save_directory(model, tmp_path))


OLDER_NOMIC: dict[str, Any] = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 64,
    "mlp_fc1_bias": False,
    "moe_every_n_layers": 0,
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "n_layer": 2,
    "n_positions": 130,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 128,
}
"""The settings of nomic-embed-text-v1.5 as its authors name them, made small."""


def test_the_authors_settings_of_nomic_bert_are_those_of_transformers(tmp_path: Path):
    newer = save_directory(_nomic(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(OLDER_NOMIC), encoding="utf-8")
    older = open_directory(tmp_path)
    # They were trained on fewer positions than they count.
    assert older.metadata == {**newer.metadata, "nomic-bert.context_length": 64}
    assert newer.metadata["nomic-bert.context_length"] == 130
    assert program_of(older).weights == program_of(newer).weights


@pytest.mark.parametrize(
    ("key", "value"),
    [("prenorm", True), ("rotary_emb_interleaved", True), ("activation_function", "gelu"), ("moe_every_n_layers", 2)],
)
def test_other_settings_of_nomic_bert_are_refused_by_name(tmp_path: Path, key: str, value: object):
    _nomic().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(OLDER_NOMIC | {key: value}), encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match=key):
        open_directory(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("position_embedding_type", "relative_key"), ("is_decoder", True), ("hidden_act", "relu")],
)
def test_other_settings_of_bert_are_refused_by_name(tmp_path: Path, key: str, value: object):
    _bert().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}), encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match=f"{key}|{value}"):
        open_directory(tmp_path)


def test_a_scaled_rotation_of_modern_bert_is_refused_by_name(tmp_path: Path):
    _modern().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config["rope_parameters"]["sliding_attention"]["rope_type"] = "yarn"
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match="'yarn'"):
        open_directory(tmp_path)
