"""Real models that come and go in little memory: the answers are those of a server that holds them all."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from memra.engine.executor_choice import find_native_obstacle
from tests.e2e.server_process import Server, Start

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_native_obstacle() is not None, reason="the native engine is not built"),
]

PROMPTS = [("small", "The capital of France is"), ("base", "Once upon a time"), ("coder", "def reverse(text):\n")]
LITTLE = {"MEMRA_EXECUTOR": "cpu", "MEMRA_KV_MB": "64"}


@pytest.fixture(scope="module")
def models(smollm2_path: Path, gemma_path: Path, qwen_path: Path) -> list[str]:
    sources = {"small": smollm2_path, "base": gemma_path, "coder": qwen_path}
    return [word for name, path in sources.items() for word in ("-m", f"{name}={path}")]


@pytest.fixture(scope="module")
def expected(start: Start, models: list[str]) -> dict[str, str]:
    server = start(*models, environ=LITTLE)
    return {name: complete(server, name, prompt) for name, prompt in PROMPTS}


def complete(server: Server, model: str, prompt: str) -> str:
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 24}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()["text"]


def contexts(server: Server) -> dict[str, int | None]:
    rows = httpx.get(f"{server.url}/v1/models").json()["data"]
    return {row["id"]: row["context_length"] for row in rows}


def test_lazy_models_in_little_memory_answer_as_on_a_server_that_holds_them_all(
    start: Start, models: list[str], expected: dict[str, str]
):
    # Room for the first two, or for the third and the first.
    server = start(*models, environ=LITTLE | {"MEMRA_LAZY_MODELS": "*", "MEMRA_MEMORY_MB": "700"})
    assert contexts(server) == {"small": None, "base": None, "coder": None}
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    for name, prompt in PROMPTS * 2:
        assert complete(server, name, prompt) == expected[name]
    assert all(contexts(server).values())
    assert server.stop() == 0
    said = server.output()
    assert "base (instance 0) is evicted" in said
    assert "coder (instance 0) is evicted" in said
    assert "small (instance 0) is evicted" not in said
    assert "Traceback" not in said


def test_answers_are_the_same_while_another_model_is_loaded(start: Start, models: list[str], expected: dict[str, str]):
    server = start(*models, environ=LITTLE | {"MEMRA_LAZY_MODELS": "base,coder"})
    prompts = [PROMPTS[0], PROMPTS[2], PROMPTS[0], PROMPTS[1], *PROMPTS]
    with ThreadPoolExecutor(len(prompts)) as clients:
        answers = list(clients.map(lambda prompt: complete(server, *prompt), prompts))
    assert answers == [expected[name] for name, _ in prompts]


def test_a_lazy_model_that_cannot_be_loaded_fails_its_requests_alone(
    start: Start, models: list[str], expected: dict[str, str], tmp_path: Path
):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    server = start(
        *models[:2], "-m", f"broken={tmp_path}/broken.gguf", environ=LITTLE | {"MEMRA_LAZY_MODELS": "broken"}
    )
    body = {"model": "broken", "prompt": "Hi", "max_tokens": 4}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "model_load_failed"
    assert "broken" in reply.json()["error"]["message"]
    assert str(tmp_path) not in reply.text
    assert int(reply.headers["retry-after"]) >= 1
    assert complete(server, *PROMPTS[0]) == expected["small"]
