"""Vectors of whole sequences: what they are, and that their bits depend on their own tokens alone."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from memra.engine.executor import Executor
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.errors import ConfigurationError, ContextLengthError, InvalidRequestError, UnsupportedModelError
from memra.layers.program import Pooling
from memra.loading.checkpoint import Checkpoint
from tests.engine.recurrent_model import make_recurrent_model
from tests.engine.reference_driver import Run, prefill, run_rows
from tests.models.family_harness import (
    native_executor,
    perturb,
    program_of,
    random_tokens,
    save_directory,
    torch_executor,
    write_gguf,
)

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
MEAN, CLS, LAST, RANK = 1, 2, 3, 4
LENGTHS = (5, 1, 64, 65, 90, 2, 97, 97, 130, 33)
EXECUTORS: dict[str, Callable[[Checkpoint], AbstractContextManager[Executor]]] = {
    "torch": torch_executor,
    "native": native_executor,
}


def _sequences(lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    return [random_tokens(125, length, seed=length) for length in lengths]


def _pooled(checkpoint: Checkpoint, number: int, folder: Path) -> Checkpoint:
    """The same model, whose file asks for another pooling."""
    key = f"{checkpoint.architecture}.pooling_type"
    changed = Checkpoint(
        checkpoint.path,
        metadata={**checkpoint.metadata, key: number},
        read_vocabulary=lambda: checkpoint.vocabulary,
        tensors=checkpoint.tensors,
        size_bytes=checkpoint.size_bytes,
        identity=checkpoint.identity,
    )
    return write_gguf(changed, folder / f"pooled-{number}.gguf")


def _bert(folder: Path) -> Checkpoint:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(max_position_embeddings=160, **SIZES))
    perturb(model)
    return save_directory(model, folder / "bert")


def _qwen3() -> Any:
    torch.manual_seed(0)
    sizes = SIZES | {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True}
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(max_position_embeddings=2048, **sizes))
    perturb(model)
    return model


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return _bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def qwen3() -> Any:
    return _qwen3()


@pytest.fixture(params=EXECUTORS)
def open_executor(request: pytest.FixtureRequest) -> Callable[[Checkpoint], AbstractContextManager[Executor]]:
    return EXECUTORS[request.param]


def _check_exactness(embeddings: PooledEmbeddings, sequences: list[list[int]]) -> None:
    together = embeddings.embed(sequences)
    backwards = embeddings.embed(sequences[::-1])[::-1]
    alone = np.concatenate([embeddings.embed([sequence]) for sequence in sequences])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, backwards)


@pytest.mark.parametrize("number", [MEAN, CLS, LAST])
def test_an_encoders_vectors_are_its_rows_pooled_and_the_same_in_any_company(
    bert: Checkpoint, tmp_path: Path, open_executor: Any, number: int
):
    checkpoint = _pooled(bert, number, tmp_path)
    sequences = _sequences()
    pick = {MEAN: lambda rows: rows.mean(axis=0), CLS: lambda rows: rows[0], LAST: lambda rows: rows[-1]}[number]
    with open_executor(checkpoint) as executor:
        embeddings = PooledEmbeddings(executor, program_of(checkpoint))
        assert embeddings.width == 64
        _check_exactness(embeddings, sequences)
        wanted = np.stack([pick(run_rows(executor, [Run(tokens, [0, 1, 2])])[0]) for tokens in sequences])
        raw = embeddings.embed(sequences, normalise=False)
        np.testing.assert_allclose(raw, wanted, rtol=1e-5, atol=1e-6)
        unit = embeddings.embed(sequences)
        np.testing.assert_allclose(unit, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-5)
        assert raw.dtype == unit.dtype == np.float32


@pytest.mark.parametrize("number", [MEAN, LAST])
def test_a_decoders_vectors_do_not_depend_on_how_steps_are_cut(
    qwen3: Any, tmp_path: Path, open_executor: Any, number: int
):
    checkpoint = _pooled(save_directory(qwen3, tmp_path / "qwen3"), number, tmp_path)
    sequences = _sequences((300, 180, 40, 400, 7))
    with open_executor(checkpoint) as executor:
        embeddings = PooledEmbeddings(executor, program_of(checkpoint), context_tokens=512)
        _check_exactness(embeddings, sequences)
        rows = prefill(executor, Run(sequences[0], list(range(5))), 64)
        wanted = rows.mean(axis=0) if number == MEAN else rows[-1]
        np.testing.assert_allclose(embeddings.embed(sequences[:1], normalise=False)[0], wanted, rtol=1e-5, atol=1e-6)


def test_an_embedding_decoder_is_what_transformers_computes(qwen3: Any, tmp_path: Path, open_executor: Any):
    checkpoint = _pooled(save_directory(qwen3, tmp_path / "qwen3"), LAST, tmp_path)
    tokens = _sequences((120,))[0]
    with torch.inference_mode():
        wanted = qwen3.eval().model(torch.tensor([tokens])).last_hidden_state[0, -1].numpy()
    with open_executor(checkpoint) as executor:
        (vector,) = PooledEmbeddings(executor, program_of(checkpoint), context_tokens=512).embed([tokens])
    assert float(vector @ wanted / np.linalg.norm(wanted)) > 0.9999
    np.testing.assert_allclose(np.linalg.norm(vector), 1.0, rtol=1e-6)


def test_a_rerankers_score_is_the_share_of_yes_against_no(qwen3: Any, tmp_path: Path, open_executor: Any):
    plain = save_directory(qwen3, tmp_path / "qwen3")
    yes, no = 5, 9
    rows = plain.tensors["token_embd.weight"].dequantise()[[yes, no]]
    head = _Head("cls.output.weight", rows)
    checkpoint = _pooled(plain.with_tensors({**plain.tensors, head.name: head}, change="head"), RANK, tmp_path)
    sequences = _sequences((120, 30))
    with torch.inference_mode():
        logits = [qwen3.eval()(torch.tensor([tokens])).logits[0, -1, [yes, no]] for tokens in sequences]
    wanted = np.stack([torch.softmax(pair, 0)[:1].numpy() for pair in logits])
    with open_executor(checkpoint) as executor:
        embeddings = PooledEmbeddings(executor, program_of(checkpoint), context_tokens=512)
        np.testing.assert_allclose(embeddings.embed(sequences), wanted, atol=5e-3)
        _check_exactness(embeddings, sequences)


class _Head:
    """Two rows of the embedding, as converters of rerankers write them."""

    quant_type = "F32"

    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values, self.shape = name, values, values.shape

    def dequantise(self) -> Any:
        return self.values


@pytest.fixture(scope="module")
def embeddings(bert: Checkpoint) -> Iterator[PooledEmbeddings]:
    with torch_executor(bert) as executor:
        yield PooledEmbeddings(executor, program_of(bert))


@pytest.mark.parametrize(
    ("sequence", "error", "named"),
    [
        ([1] * 161, ContextLengthError, "Sequence 1 has 161 tokens, but the model's context holds 160"),
        ([], InvalidRequestError, "Sequence 1 is empty"),
        ([3, 128], InvalidRequestError, "Sequence 1 holds a token outside of the vocabulary of 128"),
        ([-1], InvalidRequestError, "Sequence 1 holds a token outside"),
    ],
)
def test_a_sequence_that_cannot_be_embedded_is_refused_by_name(
    embeddings: PooledEmbeddings, sequence: list[int], error: type[Exception], named: str
):
    with pytest.raises(error, match=named):
        embeddings.embed([[4, 5], sequence])


def test_a_sequence_as_long_as_the_context_is_taken_and_no_sequences_are_none(embeddings: PooledEmbeddings):
    assert embeddings.embed([[7] * embeddings.context_tokens]).shape == (1, 64)
    assert embeddings.embed([]).shape == (0, 64)


def test_pages_too_few_for_the_context_are_refused_by_name(bert: Checkpoint):
    with (
        native_executor(bert, num_pages=2) as executor,
        pytest.raises(ConfigurationError, match="160 tokens needs 3 pages of 64 tokens, not 2"),
    ):
        PooledEmbeddings(executor, program_of(bert))


def test_a_language_model_makes_no_embeddings(qwen3: Any, tmp_path: Path):
    checkpoint = save_directory(qwen3, tmp_path / "qwen3")
    with torch_executor(checkpoint) as executor, pytest.raises(UnsupportedModelError, match="qwen3 language model"):
        PooledEmbeddings(executor, program_of(checkpoint))


def test_a_model_with_recurrent_layers_makes_no_embeddings(bert: Checkpoint):
    program, _ = make_recurrent_model()
    with torch_executor(bert) as executor, pytest.raises(UnsupportedModelError, match="recurrent layers"):
        PooledEmbeddings(executor, replace(program, pooling=Pooling.MEAN))
