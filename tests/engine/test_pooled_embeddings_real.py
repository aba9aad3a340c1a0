"""MiniLM's vectors of real sentences, against transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.layers.program import Pooling
from memra.loading.model_path import open_checkpoint
from tests.models.family_harness import native_executor, program_of, torch_executor, write_gguf

pytestmark = pytest.mark.models

SENTENCES = (
    "Hello.",
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Two men pushed carts through the woods.",
    "A cheetah is running behind its prey.",
    "How do I reset my password?",
    "I forgot the password of my account; what now?",
    "The mitochondrion is the powerhouse of the cell.",
    "In 1969, humans first walked on the Moon.",
    "E = mc^2",
    "def add(a, b): return a + b",
    "SELECT name FROM users WHERE id = 7;",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Le chat dort sur le canapé.",
    "El perro come en la cocina.",
    "日本語の文章です。",
    "Это предложение на русском языке.",
    "🙂 emojis 🚀 everywhere 🎉",
    "UPPER CASE SHOUTING!!!",
    "comma, separated, values, 1, 2, 3",
    "https://example.org/a/path?query=value#fragment",
    "Supercalifragilisticexpialidocious antidisestablishmentarianism",
    "a",
    "?",
    "   spaces   between   words   ",
    "The quick brown fox jumps over the lazy dog. " * 5,
    "Interest rates rose again, and the central bank said that it would watch inflation closely. " * 8,
    "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 16,
    "word " * 300,
)


@pytest.fixture(scope="module")
def token_ids(minilm_directory: Path) -> list[list[int]]:
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(minilm_directory)
    found: list[list[int]] = tokenizer(list(SENTENCES))["input_ids"]
    return found


@pytest.fixture(scope="module")
def wanted(minilm_directory: Path, token_ids: list[list[int]]) -> NDArray[np.float64]:
    """The mean row of each sentence alone, divided by its norm."""
    model: Any = transformers.AutoModel.from_pretrained(minilm_directory, attn_implementation="eager").eval()
    with torch.inference_mode():
        means = [model(torch.tensor([ids])).last_hidden_state[0].double().mean(dim=0) for ids in token_ids]
    return np.stack([(mean / mean.norm()).numpy() for mean in means])


def test_the_directory_says_how_to_pool(minilm_directory: Path):
    program = program_of(open_checkpoint(minilm_directory))
    assert (program.pooling, program.output_width, program.context_tokens) == (Pooling.MEAN, 384, 512)


def test_on_torch_vectors_are_those_of_transformers(
    minilm_directory: Path, token_ids: list[list[int]], wanted: NDArray[np.float64]
):
    checkpoint = open_checkpoint(minilm_directory)
    with torch_executor(checkpoint) as executor:
        embeddings = PooledEmbeddings(executor, program_of(checkpoint))
        vectors = embeddings.embed(token_ids)
        np.testing.assert_array_equal(embeddings.embed(token_ids[7:9]), vectors[7:9])
    assert np.abs(vectors - wanted).max() < 1e-4


@pytest.mark.parametrize("quantised", [False, True])
def test_natively_vectors_point_where_those_of_transformers_do(
    minilm_directory: Path,
    tmp_path: Path,
    token_ids: list[list[int]],
    wanted: NDArray[np.float64],
    quantised: bool,  # noqa: FBT001  (a case)
):
    checkpoint = open_checkpoint(minilm_directory)
    if quantised:
        checkpoint = write_gguf(checkpoint, tmp_path / "model.gguf", quantised=True)
    with native_executor(checkpoint) as executor:
        embeddings = PooledEmbeddings(executor, program_of(checkpoint))
        vectors = embeddings.embed(token_ids)
        for index in (0, 7, 28):
            np.testing.assert_array_equal(embeddings.embed([token_ids[index]])[0], vectors[index])
    # int8 weights and activations turn the worst of these vectors to a
    # cosine of 0.9976; llama.cpp's Q8_0 does the same to it.
    assert np.sum(vectors * wanted, axis=1).min() > (0.997 if quantised else 0.9999)
