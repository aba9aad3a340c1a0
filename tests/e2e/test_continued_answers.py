"""A real model goes on with what was begun, tells how likely a prompt is, and ends where it is told to."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

TEXT = "The capital of France is Paris — and the capital of Italy is Rome."
QUESTION = {"role": "user", "content": "Name three rivers."}


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}", environ={"MEMRA_COMPAT": "openai"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=300) as made:
        yield made


def ask(client: httpx.Client, path: str, **fields: Any) -> Any:
    reply = client.post(path, json={"model": "small", "temperature": 0, "max_tokens": 16, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat(client: httpx.Client, **fields: Any) -> Any:
    return ask(client, "/v1/chat/completions", **{"messages": [QUESTION], **fields})


def complete(client: httpx.Client, **fields: Any) -> Any:
    return ask(client, "/v1/completions", **fields)["choices"][0]


def test_an_answer_cut_in_two_is_the_answer(client: httpx.Client):
    whole = chat(client, max_tokens=32)["choices"][0]["message"]["content"]
    half = chat(client, max_tokens=12)["choices"][0]["message"]["content"]
    begun = {"role": "assistant", "content": half}
    for fields in (
        {"messages": [QUESTION, begun], "continue_final_message": True, "add_generation_prompt": False},
        {"messages": [QUESTION, {**begun, "prefix": True}]},
    ):
        rest = chat(client, max_tokens=20, **fields)["choices"][0]["message"]["content"]
        assert half + rest == whole
        echoed = chat(client, max_tokens=20, echo=True, **fields)["choices"][0]["message"]["content"]
        assert echoed == whole
    message = ask(client, "/v1/messages", messages=[QUESTION, begun], max_tokens=20)
    assert half + message["content"][0]["text"] == whole


def test_a_prompts_tokens_have_the_likelihoods_that_generating_them_would_give(client: httpx.Client):
    generated = complete(client, prompt=TEXT, max_tokens=12, logprobs=2)
    scored = complete(client, prompt=TEXT + generated["text"], max_tokens=0, logprobs=2, echo=True)
    logprobs = scored["logprobs"]
    assert scored["text"] == TEXT + generated["text"] == "".join(logprobs["tokens"])
    assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
    for token, place in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert scored["text"][place:].startswith(token)
    num = len(generated["logprobs"]["tokens"])
    assert logprobs["tokens"][-num:] == generated["logprobs"]["tokens"]
    # The same bits of logits; two ways to add up their exponentials.
    assert logprobs["token_logprobs"][-num:] == pytest.approx(generated["logprobs"]["token_logprobs"], abs=1e-5)


def test_likelihoods_do_not_depend_on_the_company(client: httpx.Client):
    def score(prompt: str) -> Any:
        return complete(client, prompt=prompt, max_tokens=2, logprobs=3, echo=True)["logprobs"]

    prompts = [TEXT, TEXT * 6, "One.", TEXT[10:]]
    alone = [score(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(score, prompts)) == alone


def test_a_streamed_echo_says_what_the_whole_one_says(client: httpx.Client):
    fields = {"prompt": TEXT, "max_tokens": 4, "logprobs": 1, "echo": True}
    whole = complete(client, **fields)
    body = {"model": "small", "temperature": 0, **fields, "stream": True}
    lines = client.post("/v1/completions", json=body).text.split("\n\n")
    parts = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert [value for part in parts if part.get("logprobs") for value in part["logprobs"][name] or []] == values


def test_an_answer_has_its_least_length_and_may_go_on_behind_its_end(client: httpx.Client):
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": "Say only: yes"}], "max_tokens": 60}
    short = chat(client, **fields)
    num = short["usage"]["completion_tokens"]
    assert (num < 60, short["choices"][0]["finish_reason"]) == (True, "stop")
    longer = chat(client, **fields, min_tokens=num + 5)
    assert longer["usage"]["completion_tokens"] >= num + 5
    on = chat(client, **fields, ignore_eos=True)
    assert (on["usage"]["completion_tokens"], on["choices"][0]["finish_reason"]) == (60, "length")
    shown = chat(client, **fields, ignore_eos=True, skip_special_tokens=False)
    assert "<|im_end|>" in shown["choices"][0]["message"]["content"]
    assert "<|im_end|>" not in on["choices"][0]["message"]["content"]


def test_a_collected_answer_is_cancelled_by_the_clients_own_name(client: httpx.Client, server: Server):
    before = server.metrics()
    with ThreadPoolExecutor(1) as threads:
        body = {"model": "small", "messages": [QUESTION], "max_tokens": 4000, "ignore_eos": True}
        named = {"x-request-id": "mine"}
        asked = threads.submit(client.post, "/v1/chat/completions", json=body, headers=named)
        server.wait_for_metrics(admitted=before["admitted"] + 1)
        assert client.post("/v1/cancel", json={"id": "mine"}).json() == {"id": "mine", "cancelled": True}
        reply = asked.result()
    assert (reply.status_code, reply.json()["error"]["code"]) == (499, "request_cancelled")
