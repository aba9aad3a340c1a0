"""A real model held to schemas, grammars and regular expressions, over HTTP."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chat.grammar_models import is_valid
from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

TEXT = {"type": "string", "maxLength": 16}
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"name": TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["red", "green", "blue", 7, None]}, "minItems": 2, "maxItems": 5},
    {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
                "minItems": 1,
                "maxItems": 3,
            },
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"},
        },
        "required": ["rows", "code"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "left": {"$ref": "#/$defs/city"},
            "right": {"anyOf": [{"$ref": "#/$defs/city"}, {"type": "null"}]},
        },
        "required": ["left", "right"],
        "additionalProperties": False,
        "$defs": {
            "city": {
                "type": "object",
                "properties": {"city": TEXT},
                "required": ["city"],
                "additionalProperties": False,
            }
        },
    },
]
QUESTIONS = ("Who was Ada Lovelace?", "Invent something.", "List what you know.", "Hello!", "Name two cities.")


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}")


@pytest.fixture(scope="module")
def coder(start: Start, qwen_path: Path) -> Server:
    return start("-m", f"small={qwen_path}")


def ask(server: Server, question: str, **fields: Any) -> httpx.Response:
    body = {"model": "small", "messages": [{"role": "user", "content": question}], "max_tokens": 300, **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)


def answer(reply: httpx.Response) -> tuple[str, str]:
    choice = reply.raise_for_status().json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.2, "seed": 3}], ids=str)
def test_every_answer_is_valid(server: Server, schema: dict[str, Any], sampling: dict[str, Any]):
    check_answers(server, schema, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_every_answer_of_a_larger_model_is_valid(coder: Server, schema: dict[str, Any]):
    check_answers(coder, schema, {"temperature": 0.8, "seed": 1})


def check_answers(server: Server, schema: dict[str, Any], sampling: dict[str, Any]) -> None:
    def one(question: str) -> tuple[str, str]:
        return answer(ask(server, question, response_format=schema_format(schema), **sampling))

    with ThreadPoolExecutor(4) as clients:
        for text, finish_reason in clients.map(one, QUESTIONS):
            assert finish_reason == "stop"
            assert is_valid(json.loads(text), schema, schema), text


def test_a_free_answer_beside_bound_ones_is_what_it_is_alone(server: Server):
    free = {"temperature": 0.8, "seed": 5, "max_tokens": 60}
    bound = {**free, "response_format": schema_format(SCHEMAS[0])}
    alone = [answer(ask(server, "Name two cities.", **fields)) for fields in (free, bound)]
    with ThreadPoolExecutor(6) as clients:
        together = list(
            clients.map(lambda fields: answer(ask(server, "Name two cities.", **fields)), [free, bound] * 3)
        )
    assert together == alone * 3


def test_a_stream_concatenates_to_the_whole_answer(server: Server):
    fields = {"temperature": 0, "response_format": schema_format(SCHEMAS[3])}
    lines = ask(server, "Name two cities.", stream=True, **fields).raise_for_status().text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    deltas = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    assert "".join(deltas) == answer(ask(server, "Name two cities.", **fields))[0]


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"regex": "(yes|no), [a-z]{3,9}!"}, "(yes|no), [a-z]{3,9}!"),
        ({"grammar": 'root ::= ("ab" | "cd"){2} "."'}, r"(ab|cd){2}\."),
        ({"grammar": 'start: WORD " " WORD\nWORD: /[A-Z][a-z]{1,5}/'}, "[A-Z][a-z]{1,5} [A-Z][a-z]{1,5}"),
        ({"guided_choice": ["hello 😀", 'a "b"\\c', "x\ty"]}, r'hello 😀|a "b"\\c|x\ty'),
        ({"structured_outputs": {"regex": "[0-9]{4}"}}, "[0-9]{4}"),
    ],
)
def test_grammars_and_regular_expressions_hold(server: Server, fields: dict[str, Any], pattern: str):
    for seed in range(3):
        text, finish_reason = answer(ask(server, "Hello!", temperature=1.0, seed=seed, **fields))
        assert re.fullmatch(pattern, text)
        assert finish_reason == "stop"


def test_several_answers_with_log_probabilities_are_all_bound(server: Server):
    fields = {"regex": "[a-d]{6}", "n": 3, "seed": 1, "logprobs": True, "top_logprobs": 2, "logit_bias": {"65": 5}}
    choices = ask(server, "Hello!", **fields).raise_for_status().json()["choices"]
    texts = [choice["message"]["content"] for choice in choices]
    assert all(re.fullmatch("[a-d]{6}", text) for text in texts)
    assert len(set(texts)) == 3
    spelled = ["".join(entry["token"] for entry in choice["logprobs"]["content"]) for choice in choices]
    assert spelled == texts


def test_a_stop_string_ends_a_bound_answer_as_any_other(server: Server):
    text, finish_reason = answer(ask(server, "Hello!", regex="[a-c]{4}x[a-c]{4}", stop=["x"]))
    assert re.fullmatch("[a-c]{4}", text)
    assert finish_reason == "stop"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_schema_that_cannot_be_held_is_refused_before_any_header(server: Server, *, is_stream: bool):
    reply = ask(server, "Hello!", response_format=schema_format({"not": {"type": "string"}}), stream=is_stream)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "response_format")
    assert "'not'" in error["message"]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": TEXT},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("get_weather", "get_time")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "function": {"name": "get_time"}}, {"get_time"}),
    ],
)
def test_a_real_model_calls_when_it_must(coder: Server, choice: Any, allowed: set[str]):
    for seed in range(4):
        fields = {"tools": TOOLS, "tool_choice": choice, "temperature": 1.0, "seed": seed}
        reply = ask(coder, "Say hello.", parallel_tool_calls=False, **fields).raise_for_status().json()
        (answered,) = reply["choices"]
        (call,) = answered["message"]["tool_calls"]
        assert answered["finish_reason"] == "tool_calls"
        assert call["function"]["name"] in allowed
        assert json.loads(call["function"]["arguments"]).keys() == {"city"}
