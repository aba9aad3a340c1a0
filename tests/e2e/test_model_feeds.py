"""Declared models in the real server: feeds, catalogue and limits; and `memra feeds` without one."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start, run_to_end
from tests.e2e.tiny_models import serve_tiny_models, write_models

TOKEN = "feeds-" * 4
METADATA = """
[models.tiny]
name = "Tiny"
description = "A random model."
created = 1760000000
quantization = "bf16"
licensing = "mit"
max_prompt_length = 200
max_output_length = 6
default_output_length = 4
default_temperature = 0.01
default_reasoning_effort = "none"
[models.tiny.pricing]
prompt = "0.00000005"
cached_prompt = "0.00000001"
completion = "0.00000015"
[models.tiny.capacity]
request_rpm = 60
prompt_tpm = 1000
completion_tpm = 500
[planned_models.later]
surface = "chat"
[provider]
id = "acme"
name = "Acme"
description = "Small models on plain machines."
api_base_url = "https://api.acme.example/v1"
auth_type = "bearer"
regions = ["global"]
compatibility = "openai"
created = 1750000000
"""


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "metadata.toml"
    path.write_text(METADATA)
    return path


@pytest.fixture
def server(start: Start, tmp_path: Path, declared: Path) -> Server:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return serve_tiny_models(
        start,
        tmp_path,
        MEMRA_MODEL_METADATA=str(declared),
        MEMRA_ADMIN_ADDR="127.0.0.1:0",
        MEMRA_ADMIN_TOKEN_FILE=str(token),
        MEMRA_ADMIN_AUDIT_FILE=str(tmp_path / "audit"),
    )


def get(server: Server, path: str) -> Any:
    return httpx.get(f"{server.url}{path}", timeout=30).json()


def complete(server: Server, **fields: object) -> Any:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()


def reload(server: Server) -> httpx.Response:
    admin_url = next(line for line in server.said if line.startswith("administration is at")).split()[-1]
    return httpx.post(f"{admin_url}/admin/reload-metadata", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)


def test_declared_models_are_published_and_held_to_their_limits(server: Server, declared: Path):
    assert "says bf16, but most weights are fp32" in "".join(server.said)
    names = [{"id": name, "object": "model"} for name in ("tiny", "vec", "rank")]
    assert get(server, "/models") == {"object": "list", "data": names}

    tiny, vec, rank = get(server, "/models?schema=openrouter")["data"]
    assert (tiny["id"], tiny["quantization"], tiny["tokenizer"]) == ("tiny", "fp32", "qwen2")
    assert tiny["input_modalities"][0]["supported_inputs"]["max_context_length"]["value"] == 206
    assert "tools" in tiny["output_modalities"][0]["supported_parameters"]
    assert [each["output_modalities"][0]["type"] for each in (vec, rank)] == ["embeddings", "rerank"]
    assert "pricing" not in json.dumps(vec)

    refused = get(server, "/models?schema=openmodels")["error"]
    assert refused["param"] == "schema"
    assert "model 'vec' does not declare pricing.prompt" in refused["message"]

    row = get(server, "/v1/models/tiny")
    assert (row["name"], row["context_length"], row["contract_version"]) == ("Tiny", 206, "2.0")
    assert row["pricing_per_million_tokens"] == {
        "currency": "USD",
        "input": "0.05",
        "cached_input": "0.01",
        "output": "0.15",
    }
    assert row["provider"]["id"] == "acme"

    first, again = complete(server), complete(server)
    assert first["usage"]["completion_tokens"] == 4, "the declared default"
    assert first["choices"] == again["choices"], "the declared temperature leaves no choice"
    assert complete(server, max_tokens=50)["usage"]["completion_tokens"] == 6
    long = complete(server, messages=[{"role": "user", "content": "word " * 100}])
    assert long["error"]["code"] == "context_length_exceeded"
    quiet, loud = (complete(server, reasoning_effort=effort)["usage"]["prompt_tokens"] for effort in ("none", "high"))
    assert first["usage"]["prompt_tokens"] == quiet > loud, "the template writes an empty thought"

    declared.write_text("[models.tiny]\ncolour = 1\n")
    broken = reload(server)
    assert (broken.status_code, "unknown key colour" in broken.text) == (409, True)
    assert get(server, "/v1/models/tiny")["name"] == "Tiny", "a broken file changes nothing"
    declared.write_text('[models.tiny]\nname = "Tiny again"\n')
    assert reload(server).json()["models"] == 1
    assert get(server, "/v1/models/tiny")["name"] == "Tiny again"
    assert complete(server, max_tokens=9)["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.tiny]\nmax_output_length = 0", '[models."tiny"] max_output_length'),
        ("[models.none]", '[models."none"]: no model of this name is served; there are: tiny'),
    ],
)
def test_a_broken_file_ends_the_start_before_any_model_is_opened(tmp_path: Path, text: str, words: str):
    path = tmp_path / "metadata.toml"
    path.write_text(text)
    done = run_to_end("run", "-m", f"tiny={tmp_path / 'absent.gguf'}", environ={"MEMRA_MODEL_METADATA": str(path)})
    assert done.returncode == 1
    assert words in done.stderr
    assert "absent.gguf" not in done.stderr


def test_feeds_are_written_without_a_server(tmp_path: Path, declared: Path):
    tiny = write_models(tmp_path)["tiny"]
    settings = {"MEMRA_MODEL_METADATA": str(declared)}

    def feeds(*words: str) -> Any:
        return run_to_end("feeds", *words, "-m", f"tiny={tiny}", environ=settings)

    printed = feeds("openrouter")
    assert printed.returncode == 0, printed.stderr
    assert json.loads(printed.stdout)["data"][0]["id"] == "tiny"
    folder = tmp_path / "registry"
    written = feeds("openmodels", "--out", str(folder))
    paths = ["providers/acme.yaml", "models/tiny.yaml", "mappings/acme/tiny.yaml"]
    assert written.stdout.splitlines() == [str(folder / path) for path in paths], written.stderr
    before = [(folder / path).read_bytes() for path in paths]
    assert feeds("openmodels", "--out", str(folder)).returncode == 0
    assert [(folder / path).read_bytes() for path in paths] == before, "the same bytes every time"
    assert feeds("bazaar").stderr.endswith("there is no feed 'bazaar'; known are openmodels, openrouter\n")
    assert "the feed openrouter has no files" in feeds("openrouter", "--out", str(folder)).stderr
    declared.write_text("[models.tiny]")
    lacking = feeds("openmodels", "--out", str(tmp_path / "nothing"))
    assert lacking.returncode == 1
    assert "[provider] does not declare id" in lacking.stderr
    assert not (tmp_path / "nothing").exists()
