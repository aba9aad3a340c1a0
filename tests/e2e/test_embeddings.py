"""An embedding model and a chat model on one endpoint: vectors are the engine's own, and no stream stands still."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from memra.chat.tokenizer import build_tokenizer
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.loading.model_path import open_checkpoint
from tests.e2e.server_process import Server, Start
from tests.engine.test_pooled_embeddings_real import SENTENCES
from tests.models.family_harness import native_executor, program_of

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path, minilm_directory: Path) -> Server:
    return start("-m", f"chat={smollm2_path}", "-m", f"org/embed={minilm_directory}")


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def together(client: openai.OpenAI) -> NDArray[np.float32]:
    return embed(client, list(SENTENCES))


def embed(client: openai.OpenAI, texts: list[str] | list[list[int]]) -> NDArray[np.float32]:
    rows = client.embeddings.create(model="org/embed", input=texts).data
    assert [row.index for row in rows] == list(range(len(texts)))
    return np.array([row.embedding for row in rows], np.float32)


def stream_words(client: openai.OpenAI, num_tokens: int) -> Iterator[str]:
    messages = [{"role": "user", "content": "Tell me a long story about a fox."}]
    stream = client.chat.completions.create(
        model="chat", messages=messages, max_tokens=num_tokens, temperature=0, stream=True
    )
    for chunk in stream:
        yield chunk.choices[0].delta.content or ""


def test_vectors_are_the_engines_own(minilm_directory: Path, client: openai.OpenAI, together: NDArray[np.float32]):
    checkpoint = open_checkpoint(minilm_directory)
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    ids = [list(tokenizer.encode(text, add_special=True, parse_special=True)) for text in SENTENCES]
    with native_executor(checkpoint) as executor:
        wanted = PooledEmbeddings(executor, program_of(checkpoint)).embed(ids)
    np.testing.assert_array_equal(together, wanted)
    np.testing.assert_array_equal(embed(client, ids), wanted)


def test_vectors_are_the_same_bits_alone_and_among_others_at_the_same_time(
    client: openai.OpenAI, together: NDArray[np.float32]
):
    with ThreadPoolExecutor(8) as pool:
        alone = list(pool.map(lambda text: embed(client, [text])[0], SENTENCES))
    np.testing.assert_array_equal(np.stack(alone), together)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-6)


def test_a_stream_goes_on_while_many_texts_are_computed_and_neither_changes_the_other(
    server: Server, client: openai.OpenAI, together: NDArray[np.float32]
):
    quiet = list(stream_words(client, 60))
    words = stream_words(client, 60)
    begun = [next(words)]
    with ThreadPoolExecutor(1) as pool:
        vectors = pool.submit(embed, client, list(SENTENCES) * 5)
        num_beside = 0
        for word in words:
            begun.append(word)
            num_beside += not vectors.done()
        np.testing.assert_array_equal(vectors.result(), np.tile(together, (5, 1)))
    assert "".join(begun) == "".join(quiet)  # how a text is cut into chunks is not promised
    assert num_beside > 10, "the stream stood still while texts were computed"
    assert server.process.poll() is None


def test_what_each_model_does_is_told_and_held_to(client: openai.OpenAI):
    rows = {row.id: row.model_extra or {} for row in client.models.list()}
    assert [rows[name]["type"] for name in ("chat", "org/embed")] == ["chat", "embedding"]
    assert rows["org/embed"]["embedding_length"] == embed(client, ["hi"]).shape[1]
    assert client.models.retrieve("org/embed").id == "org/embed"
    with pytest.raises(openai.BadRequestError, match="makes embeddings"):
        client.completions.create(model="org/embed", prompt="hi")
    with pytest.raises(openai.BadRequestError, match="generates text"):
        client.embeddings.create(model="chat", input="hi")
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]. has 602 tokens"):
        client.embeddings.create(model="org/embed", input=["hi", "word " * 600])
