"""EmbeddingGemma against transformers: Gemma 3's layers as an encoder, and the matrices behind its pooling."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.layers.program import Pooling
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, run_rows
from tests.models.encoder_harness import check_encoder, encoder_tokens, transformers_rows
from tests.models.family_harness import native_executor, perturb, program_of, save_directory, torch_executor, write_gguf

WIDTH, INNER = 64, 96


def _model(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "max_position_embeddings": 512,
        "sliding_window": 20,
        "initializer_range": 0.2,
        "use_bidirectional_attention": True,
        "attn_implementation": "eager",
    }
    model = transformers.Gemma3TextModel(transformers.Gemma3TextConfig(**sizes | changes))
    perturb(model)
    return model


def _add_modules(folder: Path, *, settings: dict[str, Any] | None = None, count: int = 2) -> list[np.ndarray]:
    """Write a sentence-transformers model's modules; returns the matrices."""
    sizes = [(INNER, WIDTH), (WIDTH, INNER), (WIDTH, WIDTH)][:count]
    kinds = ["Transformer", "Pooling", *["Dense"] * count, "Normalize"]
    modules = [
        {"path": f"{index}_{kind}" if index else "", "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    generator = np.random.default_rng(0)
    matrices = [generator.normal(size=size).astype(np.float32) / 8 for size in sizes]
    plain = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    for index, matrix in enumerate(matrices, start=2):
        dense = folder / f"{index}_Dense"
        dense.mkdir()
        (dense / "config.json").write_text(json.dumps(plain | (settings or {})))
        safetensors.numpy.save_file({"linear.weight": matrix}, dense / "model.safetensors")
    return matrices


def test_an_embedding_gemma_is_what_transformers_computes(tmp_path: Path):
    check_encoder(_model(), tmp_path)


def test_the_matrices_behind_the_pooling_are_applied_in_both_formats(tmp_path: Path):
    model = _model()
    model.save_pretrained(tmp_path)
    first, second = _add_modules(tmp_path)
    token_ids = encoder_tokens(128)
    wanted = transformers_rows(model, token_ids).mean(0) @ first.T @ second.T
    directory = open_directory(tmp_path)
    plain = write_gguf(directory, tmp_path / "plain.gguf")
    for checkpoint, execute in ((directory, torch_executor), (plain, torch_executor), (plain, native_executor)):
        assert program_of(checkpoint).pooling is Pooling.MEAN
        with execute(checkpoint) as executor:
            rows = run_rows(executor, [Run(token_ids, [0, 1])])[0]
        np.testing.assert_allclose(rows.mean(0), wanted, atol=2e-3)  # float16 keys and values in the native one


@pytest.mark.parametrize(
    "settings", [{"bias": True}, {"activation_function": "torch.nn.modules.activation.Tanh"}, {"bias": None}]
)
def test_a_matrix_with_more_behind_it_is_refused(settings: dict[str, Any], tmp_path: Path):
    _model().save_pretrained(tmp_path)
    _add_modules(tmp_path, settings=settings)
    with pytest.raises(UnsupportedModelError, match="2_Dense"):
        open_directory(tmp_path)


def test_more_than_two_matrices_are_refused(tmp_path: Path):
    _model().save_pretrained(tmp_path)
    _add_modules(tmp_path, count=3)
    with pytest.raises(UnsupportedModelError, match="3 Dense modules"):
        open_directory(tmp_path)


def test_a_matrix_that_is_not_there_is_named(tmp_path: Path):
    _model().save_pretrained(tmp_path)
    _add_modules(tmp_path)
    (tmp_path / "3_Dense" / "model.safetensors").unlink()
    with pytest.raises(SourceError, match="3_Dense"):
        open_directory(tmp_path)


def test_a_matrix_of_another_width_is_named(tmp_path: Path):
    checkpoint = save_directory(_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(CorruptFileError, match=r"dense_2\.weight"):
        build_program(checkpoint.architecture, checkpoint.metadata, shapes | {"dense_2.weight": (INNER, WIDTH + 1)})


@pytest.mark.parametrize(("key", "value"), [("attention.causal", True), ("pooling_type", 4), ("pooling_type", 0)])
def test_what_is_no_embedding_of_a_text_is_refused_by_name(key: str, value: object, tmp_path: Path):
    checkpoint = save_directory(_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=key):
        build_program(checkpoint.architecture, {**checkpoint.metadata, f"gemma-embedding.{key}": value}, shapes)


def test_a_causal_model_without_a_head_is_refused(tmp_path: Path):
    _model(use_bidirectional_attention=False).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="use_bidirectional_attention"):
        open_directory(tmp_path)
