"""Anthropic's client, and OpenAI's for responses, with a real model: whole, streamed, with tools, bound to a class."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

KEY = "a-key-of-the-tests"
MODEL = "org/coder"
GREETING = "Name three rivers in Europe."
QUESTION = "What is the weather in Paris? Call the function."
PERSON = "Ada Lovelace is 36 years old. Who is she?"
RESULT = "19 degrees, sunny"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = {"name": "get_weather", "description": "Get the current weather of a city."}


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def server(start: Start, qwen_path: Path) -> Server:
    return start("-m", f"{MODEL}={qwen_path}", environ={"MEMRA_API_KEY": KEY})


@pytest.fixture(scope="module")
def claude(server: Server) -> Iterator[Any]:
    anthropic = pytest.importorskip("anthropic")
    http = anthropic.DefaultHttpxClient(trust_env=False)
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, http_client=http) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    http = httpx.Client(trust_env=False, timeout=300)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, http_client=http) as made:
        yield made


def whole_message(client: Any, content: str, **fields: Any) -> Any:
    return client.messages.create(**message_body(content, **fields))


def streamed_message(client: Any, content: str, **fields: Any) -> Any:
    with client.messages.stream(**message_body(content, **fields)) as stream:
        return stream.get_final_message()


def message_body(content: str, **fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": content}]
    greedy = {"extra_body": {"temperature": 0}}  # the client has no argument for it since version 2
    return {"model": MODEL, "max_tokens": 96, "messages": turns, **greedy, **fields}


def whole_response(client: openai.OpenAI, given: Any, **fields: Any) -> Any:
    return client.responses.create(**response_body(given, **fields))


def streamed_response(client: openai.OpenAI, given: Any, **fields: Any) -> Any:
    with client.responses.stream(**response_body(given, **fields)) as stream:
        return stream.get_final_response()


def response_body(given: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": given, "temperature": 0, "max_output_tokens": 96, **fields}


def test_a_message_says_the_same_whole_and_streamed(claude: Any):
    whole, streamed = (way(claude, GREETING, system="Be brief.") for way in (whole_message, streamed_message))
    assert whole.content[0].text.strip()
    assert [block.text for block in streamed.content] == [block.text for block in whole.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    counted = claude.messages.count_tokens(
        model=MODEL, system="Be brief.", messages=[{"role": "user", "content": GREETING}]
    )
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


@pytest.mark.parametrize("ask", [whole_message, streamed_message])
def test_a_message_calls_a_tool_and_reads_what_it_said(claude: Any, ask: Callable[..., Any]):
    called = ask(claude, QUESTION, tools=[{**ABOUT, "input_schema": SCHEMA}])
    (use,) = (block for block in called.content if block.type == "tool_use")
    assert (called.stop_reason, use.name, use.input) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": RESULT}]}
    turns = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    assert "19" in ask(claude, "", messages=turns).content[0].text


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_message_calls_where_it_must(claude: Any, choice: dict[str, Any]):
    choice = {**choice, "disable_parallel_tool_use": True}
    called = whole_message(claude, "Say hello.", tools=[{**ABOUT, "input_schema": SCHEMA}], tool_choice=choice)
    assert [block.name for block in called.content if block.type == "tool_use"] == ["get_weather"]


def test_a_message_has_the_shape_of_a_class(claude: Any):
    assert claude.messages.parse(**message_body(PERSON), output_format=Person).parsed_output.age == 36


def test_a_model_without_thoughts_may_be_asked_for_them(claude: Any):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    told = whole_message(claude, GREETING, thinking=thinking, max_tokens=1100)
    assert [block.type for block in told.content] == ["text"]


def test_a_response_says_the_same_whole_and_streamed(client: openai.OpenAI):
    whole, streamed = (way(client, GREETING, instructions="Be brief.") for way in (whole_response, streamed_response))
    assert whole.output_text.strip()
    assert streamed.output_text == whole.output_text
    assert streamed.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("ask", [whole_response, streamed_response])
def test_a_response_calls_a_tool_and_reads_what_it_said(client: openai.OpenAI, ask: Callable[..., Any]):
    tool = {"type": "function", **ABOUT, "parameters": SCHEMA, "strict": False}
    called = ask(client, QUESTION, tools=[tool])
    (call,) = (item for item in called.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    assert "19" in ask(client, [{"role": "user", "content": QUESTION}, *called.output, result]).output_text


def test_a_response_has_the_shape_of_a_class(client: openai.OpenAI):
    told = client.responses.parse(**response_body(PERSON), text_format=Person)
    assert told.output_parsed is not None
    assert told.output_parsed.age == 36


def test_a_chat_has_the_shape_of_a_class(client: openai.OpenAI):
    body: Any = {"model": MODEL, "messages": [{"role": "user", "content": PERSON}], "temperature": 0}
    parsed = client.chat.completions.parse(**body, response_format=Person).choices[0].message.parsed
    assert parsed is not None
    assert parsed.age == 36
    with client.chat.completions.stream(**body, response_format=Person) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed
