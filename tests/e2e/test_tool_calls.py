"""OpenAI's client calls tools with a real model: whole and streamed say the same, and results are read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server_process import Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city's name."}},
            "required": ["city"],
        },
    },
}
QUESTION = {"role": "user", "content": "What is the weather in Paris? Call the function."}


@pytest.fixture(scope="module")
def client(start: Start, qwen_path: Path) -> Iterator[openai.OpenAI]:
    server = start("-m", f"coder={qwen_path}")
    http = httpx.Client(trust_env=False, timeout=300)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    body = {"messages": [QUESTION], "tools": [WEATHER], "temperature": 0, "max_tokens": 96, **fields}
    return client.chat.completions.create(model="coder", **body).choices[0]


def stream(client: openai.OpenAI, **fields: Any) -> Any:
    body = {"messages": [QUESTION], "tools": [WEATHER], "temperature": 0, "max_tokens": 96, **fields}
    with client.chat.completions.stream(model="coder", **body) as events:
        return events.get_final_completion().choices[0]


def calls(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]


@pytest.mark.parametrize("city", ["Paris", "Zürich", "Rome"])
def test_a_model_calls_a_tool_whole_and_streamed(client: openai.OpenAI, city: str):
    question = {"role": "user", "content": f"What is the weather in {city}? Call the function."}
    whole, streamed = (way(client, messages=[question]) for way in (ask, stream))
    assert whole.finish_reason == streamed.finish_reason == "tool_calls"
    assert calls(whole) == calls(streamed) == [("get_weather", {"city": city})]
    assert whole.message.content == streamed.message.content
    ids = {call.id for choice in (whole, streamed) for call in choice.message.tool_calls}
    assert len(ids) == 2
    assert all(call_id.startswith("call_") for call_id in ids)


def test_the_answer_goes_on_from_what_the_tool_said(client: openai.OpenAI):
    called = ask(client).message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "19 degrees, sunny"}
    turns = [QUESTION, called.model_dump(exclude_none=True), result]
    choice = ask(client, messages=turns, tools=openai.omit, max_tokens=32)
    assert "19" in choice.message.content


def test_a_tool_that_may_not_be_called_is_not(client: openai.OpenAI):
    choice = ask(client, tool_choice="none", max_tokens=24)
    assert choice.message.tool_calls is None
    assert choice.message.content


def test_an_answer_of_one_call_ends_there(client: openai.OpenAI):
    choice, streamed = (way(client, parallel_tool_calls=False) for way in (ask, stream))
    assert choice.finish_reason == streamed.finish_reason == "tool_calls"
    assert calls(choice) == calls(streamed) == [("get_weather", {"city": "Paris"})]
