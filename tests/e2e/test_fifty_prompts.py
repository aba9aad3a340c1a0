"""Fifty prompts each: all that a real model must say is valid, and so is every call that it makes freely."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chat.grammar_models import is_valid
from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(1800)]

CITIES = ("Paris", "Rome", "Z\u00fcrich", "S\u00e3o Paulo", "\u6771\u4eac", "Cairo", "Oslo", "Lima", "Delhi", "Berlin")
ASKED = (
    "What is the weather in {}? Call the function.",
    "I am going to {} tomorrow for three days. Do I need an umbrella?",
    "Book a table in {} for two, please.",
    "Compare {} with London.",
    "Say hello to my friend in {}.",
)
PROMPTS = [words.format(city) for words in ASKED for city in CITIES]

NAME = {"type": "string", "minLength": 1, "maxLength": 24}
PLACE = {
    "type": "object",
    "properties": {
        "city": NAME,
        "country": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "kind": {"enum": ["town", "city", "village", None]},
    },
    "required": ["city", "country"],
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "mood": {"enum": ["good", "bad", "mixed"]},
            "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["mood", "stars"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": 99},
                    "minItems": 2,
                    "maxItems": 3,
                },
                "minItems": 2,
                "maxItems": 3,
            }
        },
        "required": ["rows"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}},
        "required": ["from", "to"],
        "additionalProperties": False,
        "$defs": {"place": PLACE},
    },
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2,4}$"},
            "tags": {"type": "array", "items": NAME, "minItems": 3, "maxItems": 4},
            "note": {"anyOf": [NAME, {"type": "null"}]},
        },
        "required": ["code", "tags", "note"],
        "additionalProperties": False,
    },
    {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "boolean"}]},
        "minItems": 1,
        "maxItems": 2,
        "$defs": {"place": PLACE},
    },
]
PARAMETERS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": NAME, "unit": {"type": "string", "enum": ["c", "f"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "book_table": {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/place"},
            "guests": {"type": "array", "items": NAME, "minItems": 1, "maxItems": 3},
            "time": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
        },
        "required": ["place", "guests", "time"],
        "additionalProperties": False,
        "$defs": {"place": PLACE},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in PARAMETERS.items()
]


@pytest.fixture(scope="module")
def small(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"model={smollm2_path}")


@pytest.fixture(scope="module")
def coder(start: Start, qwen_path: Path) -> Server:
    return start("-m", f"model={qwen_path}")


def ask(server: Server, prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "model", "messages": [{"role": "user", "content": prompt}], "max_tokens": 400, **fields}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=900)
    choice: dict[str, Any] = reply.raise_for_status().json()["choices"][0]
    return choice


def ask_all(server: Server, prompts: list[str], fields_of: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """All answers; half of them greedy."""

    def one(index: int) -> dict[str, Any]:
        sampling = {"temperature": 0} if index % 2 else {"temperature": 1.0, "seed": index}
        return ask(server, prompts[index], **(sampling | fields_of(index)))

    with ThreadPoolExecutor(8) as clients:
        return list(clients.map(one, range(len(prompts))))


def say(what: str, counts: Counter[Any]) -> None:
    print(f"\n{what}: {dict(counts)}")  # noqa: T201  (the figures are what somebody who runs this wants)


def calls_of(choice: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = choice["message"].get("tool_calls") or ()
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def is_valid_call(name: str, arguments: Any) -> bool:
    return is_valid(arguments, PARAMETERS[name], PARAMETERS[name])


@pytest.mark.parametrize("model", ["small", "coder"])
def test_every_answer_is_of_its_schema(request: pytest.FixtureRequest, model: str):
    def fields(index: int) -> dict[str, Any]:
        schema = {"name": "answer", "schema": SCHEMAS[index % len(SCHEMAS)], "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}

    choices = ask_all(request.getfixturevalue(model), PROMPTS, fields)
    say(f"{model}, schemas", Counter(choice["finish_reason"] for choice in choices))
    for index, choice in enumerate(choices):
        schema, text = SCHEMAS[index % len(SCHEMAS)], choice["message"]["content"]
        assert choice["finish_reason"] == "stop", text
        assert is_valid(json.loads(text), schema, schema), text


@pytest.mark.parametrize("model", ["small", "coder"])
def test_an_object_of_any_shape_ends(request: pytest.FixtureRequest, model: str):
    """JSON mode binds no length, so a model may talk until its limit; but never in white space."""
    choices = ask_all(request.getfixturevalue(model), PROMPTS, lambda _: {"response_format": {"type": "json_object"}})
    say(f"{model}, any object", Counter(choice["finish_reason"] for choice in choices))
    for choice in choices:
        text = choice["message"]["content"]
        assert "\n\n" not in text
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)


def test_free_calls_are_of_declared_tools_and_have_whole_arguments(coder: Server):
    choices = ask_all(coder, PROMPTS, lambda _: {"tools": TOOLS})
    say("free", Counter((choice["finish_reason"], len(calls_of(choice))) for choice in choices))
    for choice in choices:
        calls = calls_of(choice)
        if choice["finish_reason"] == "tool_calls":
            assert calls
        else:  # a bare object with words behind it is no call, and is shown as it was written
            assert all(name in choice["message"]["content"] for name, _ in calls)
        assert all(name in PARAMETERS and isinstance(arguments, dict) for name, arguments in calls)
    asked = [choice for prompt, choice in zip(PROMPTS, choices, strict=True) if "Call the function" in prompt]
    assert any(calls_of(choice) for choice in asked)


@pytest.mark.parametrize("is_parallel", [True, False])
def test_forced_calls_are_of_their_schemas(coder: Server, *, is_parallel: bool):
    # Room for all the calls that an answer may hold: a small model goes on as long as it may.
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": is_parallel, "max_tokens": 2500}
    choices = ask_all(coder, PROMPTS, lambda _: fields)
    say(f"required, {is_parallel=}", Counter((choice["finish_reason"], len(calls_of(choice))) for choice in choices))
    for choice in choices:
        calls = calls_of(choice)
        assert choice["finish_reason"] == "tool_calls"
        assert not choice["message"]["content"]
        assert len(calls) == 1 or (is_parallel and calls)
        assert all(is_valid_call(*call) for call in calls), calls


def test_a_named_tool_is_called(coder: Server):
    names = sorted(PARAMETERS)

    def fields(index: int) -> dict[str, Any]:
        choice = {"type": "function", "function": {"name": names[index % 2]}}
        return {"tools": TOOLS, "tool_choice": choice}

    choices = ask_all(coder, PROMPTS, fields)
    say("named", Counter((choice["finish_reason"], len(calls_of(choice))) for choice in choices))
    for index, choice in enumerate(choices):
        ((name, arguments),) = calls_of(choice)
        assert name == names[index % 2]
        assert is_valid_call(name, arguments), arguments


def test_two_calls_are_made_where_two_are_asked_for(coder: Server):
    pairs = [f"Get the weather in {one} and in {other}, one call each." for one in CITIES for other in CITIES[:5]]
    choices = ask_all(coder, pairs, lambda _: {"tools": TOOLS[:1], "tool_choice": "required", "temperature": 0})
    say("parallel", Counter((choice["finish_reason"], len(calls_of(choice))) for choice in choices))
    assert all(is_valid_call(*call) for choice in choices for call in calls_of(choice))
    assert any(len(calls_of(choice)) > 1 for choice in choices)
