"""A real model says the same in every shape of an answer, and its prompt has the length that was counted."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

TURNS = [
    {"role": "user", "content": "Name three rivers."},
    {"role": "assistant", "content": "Rhine, Nile, Volga."},
    {"role": "user", "content": "And three more, with é and 😀."},
]
SYSTEM = "You answer briefly."
LIMIT = 24


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}")


def post(server: Server, path: str, **fields: Any) -> Any:
    body = {"model": "small", "temperature": 0, **fields}
    reply = httpx.post(f"{server.url}{path}", json=body, timeout=300).raise_for_status()
    if not fields.get("stream"):
        return reply.json()
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n") if line.startswith("data: {")]


@pytest.fixture(scope="module")
def chat(server: Server) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, *TURNS]
    return post(server, "/v1/chat/completions", messages=messages, max_tokens=LIMIT)


def responses(server: Server, **fields: Any) -> Any:
    return post(server, "/v1/responses", instructions=SYSTEM, input=TURNS, max_output_tokens=LIMIT, **fields)


def messages(server: Server, **fields: Any) -> Any:
    return post(server, "/v1/messages", system=SYSTEM, messages=TURNS, max_tokens=LIMIT, **fields)


def test_a_response_says_what_a_chat_completion_says(server: Server, chat: dict[str, Any]):
    response = responses(server)
    (message,) = response["output"]
    assert message["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert response["usage"]["total_tokens"] == chat["usage"]["total_tokens"]
    events = responses(server, stream=True)
    assert events[-1]["response"]["output"][0]["content"] == message["content"]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == message["content"][0]["text"]
    assert len(deltas) > 1


def test_a_message_says_what_a_chat_completion_says(server: Server, chat: dict[str, Any]):
    message = messages(server)
    assert message["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    reason = {"length": "max_tokens", "stop": "end_turn"}[chat["choices"][0]["finish_reason"]]
    assert message["stop_reason"] == reason
    events = messages(server, stream=True)
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == message["content"][0]["text"]
    assert len(deltas) > 1


def test_the_tokens_that_are_counted_are_those_of_the_prompt(server: Server, chat: dict[str, Any]):
    counted = post(server, "/v1/messages/count_tokens", system=SYSTEM, messages=TURNS)
    assert counted == {"input_tokens": chat["usage"]["prompt_tokens"]}


def test_the_stop_sequence_that_was_found_is_told(server: Server, chat: dict[str, Any]):
    text = chat["choices"][0]["message"]["content"]
    found = text[len(text) // 2 :][:4]
    message = messages(server, stop_sequences=["never said 123", found])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", found)
    assert message["content"][0]["text"] == text[: text.index(found)]
