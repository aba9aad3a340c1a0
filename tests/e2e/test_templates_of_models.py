"""Chat templates that refuse, and those that show earlier thoughts, behind the real server and every route of chats."""

from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start
from tests.e2e.tiny_models import make_chat_model, write_model

ALTERNATING = """{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{{- message.role }}: {{ message.content }}
{% endfor %}"""
WITHOUT_SYSTEM = """{%- for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{{- message.role }}: {{ message.content }}
{% endfor %}"""
THINKING = """{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATES = {"alternating": ALTERNATING, "systemless": WITHOUT_SYSTEM, "thinking": THINKING}
USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
ROUTES = {"/v1/chat/completions": "messages", "/v1/messages": "messages", "/v1/responses": "input"}
"""And the field that holds the conversation."""


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("templates")
    models: list[str] = []
    for name, template in TEMPLATES.items():
        models += ["-m", f"{name}={write_model(make_chat_model(), folder / f'{name}.gguf', template=template)}"]
    return start(*models, environ={"MEMRA_KV_MB": "16"})


def post(server: Server, path: str, **fields: Any) -> httpx.Response:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    return httpx.post(f"{server.url}{path}", json={limit: 4, **fields}, timeout=60)


REFUSED = {
    "alternating": ([USER, USER], "Roles must alternate user/assistant/user/assistant/..."),
    "systemless": ([SYSTEM, USER], "System role not supported"),
}
"""By model: turns, and the words that refuse them."""


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("model", REFUSED)
def test_what_a_template_refuses_is_the_clients_fault_and_told_in_its_words(server: Server, path: str, model: str):
    (turns, words), field = REFUSED[model], ROUTES[path]
    for is_stream in (False, True):
        refused = post(server, path, model=model, stream=is_stream, **{field: turns})
        error = refused.json()["error"]
        assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
        assert words in error["message"]
        assert error.get("param", field) == field  # Anthropic's errors have none
        assert post(server, path, model=model, stream=is_stream, **{field: [USER]}).status_code == 200


def shown(server: Server, turn: dict[str, Any]) -> str:
    """The prompt of a conversation that holds a turn of the assistant, as the model sees it."""
    turns = [USER, turn, {"role": "user", "content": "Go on."}]
    tokens = post(server, "/v1/tokenize", model="thinking", messages=turns).json()["tokens"]
    return httpx.post(f"{server.url}/v1/detokenize", json={"model": "thinking", "tokens": tokens}).json()["text"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_earlier_thoughts_come_back_to_the_model_under_either_name(server: Server, name: str):
    said = {"role": "assistant", "content": "Four."}
    prompt = shown(server, {**said, name: "Two and two."})
    assert "<|im_start|>assistant\n<think>\nTwo and two.\n</think>\n\nFour.<|im_end|>" in prompt
    assert prompt.replace("<think>\nTwo and two.\n</think>\n\n", "") == shown(server, said)


def test_earlier_thoughts_count_the_same_on_every_route(server: Server):
    thought, said = "Two and two.", "Four."
    last = {"role": "user", "content": "Go on."}
    blocks = [{"type": "thinking", "thinking": thought, "signature": ""}, {"type": "text", "text": said}]
    items = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]},
        {"role": "assistant", "content": said},
    ]
    chat = [USER, {"role": "assistant", "content": said, "reasoning_content": thought}, last]
    tokens = [
        post(server, "/v1/chat/completions", model="thinking", messages=chat).json()["usage"]["prompt_tokens"],
        post(server, "/v1/responses", model="thinking", input=[USER, *items, last]).json()["usage"]["input_tokens"],
        post(
            server,
            "/v1/messages/count_tokens",
            model="thinking",
            messages=[USER, {"role": "assistant", "content": blocks}, last],
        ).json()["input_tokens"],
    ]
    assert len(set(tokens)) == 1, tokens
