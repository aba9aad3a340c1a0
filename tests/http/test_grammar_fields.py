"""What an answer must look like, from the wire to the house."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.messages.constraint import AnswerGrammar, GrammarKind

Start = Callable[..., Awaitable[Any]]
SCHEMA = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"enum": [1, "é"]}}}
SCHEMA_TEXT = '{"type":"object","properties":{"z":{"type":"string"},"a":{"enum":[1,"é"]}}}'


def _schema(text: str) -> AnswerGrammar:
    return AnswerGrammar(GrammarKind.JSON_SCHEMA, text, "response_format")


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": None, "grammar": None, "regex": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, _schema('{"type":"object"}')),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
            _schema(SCHEMA_TEXT),
        ),
        ({"response_format": {"type": "json_schema", "json_schema": SCHEMA}}, _schema(SCHEMA_TEXT)),
        ({"grammar": 'root ::= "a"'}, AnswerGrammar(GrammarKind.RULES, 'root ::= "a"', "grammar")),
        ({"guided_json": SCHEMA}, AnswerGrammar(GrammarKind.JSON_SCHEMA, SCHEMA_TEXT, "guided_json")),
        ({"guided_json": SCHEMA_TEXT}, AnswerGrammar(GrammarKind.JSON_SCHEMA, SCHEMA_TEXT, "guided_json")),
        ({"json_schema": SCHEMA}, AnswerGrammar(GrammarKind.JSON_SCHEMA, SCHEMA_TEXT, "json_schema")),
        ({"guided_regex": "a+"}, AnswerGrammar(GrammarKind.REGEX, "a+", "guided_regex")),
        ({"guided_grammar": "start: A"}, AnswerGrammar(GrammarKind.RULES, "start: A", "guided_grammar")),
        (
            {"guided_choice": ["é", 'a"b']},
            AnswerGrammar(GrammarKind.RULES, 'start: "é" | "a\\"b"', "guided_choice"),
        ),
        (
            {"structured_outputs": {"json": SCHEMA}},
            AnswerGrammar(GrammarKind.JSON_SCHEMA, SCHEMA_TEXT, "structured_outputs"),
        ),
        (
            {"structured_outputs": {"json_object": True, "regex": None}},
            AnswerGrammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}', "structured_outputs"),
        ),
        (
            {"structured_outputs": {"choice": ["a", "b"]}},
            AnswerGrammar(GrammarKind.RULES, 'start: "a" | "b"', "structured_outputs"),
        ),
        ({"structured_outputs": {"regex": "a"}}, AnswerGrammar(GrammarKind.REGEX, "a", "structured_outputs")),
        (
            {"structured_outputs": {"grammar": "r ::= x"}},
            AnswerGrammar(GrammarKind.RULES, "r ::= x", "structured_outputs"),
        ),
        ({"structured_outputs": {}, "guided_json": None, "guided_choice": None}, None),
        ({"regex": "a+", "response_format": {"type": "text"}}, AnswerGrammar(GrammarKind.REGEX, "a+", "regex")),
    ],
)
async def test_the_house_is_told_what_an_answer_must_match(
    start: Start, fields: dict[str, Any], grammar: AnswerGrammar | None
):
    server = await start()
    assert (await server.chat(**fields)).status_code == 200
    reply = await server.post("/v1/completions", {"model": "fake", "prompt": "hi", **fields})
    assert reply.status_code == 200
    assert [request.grammar for request in server.house.requests] == [grammar, grammar]


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]


@pytest.mark.parametrize(
    ("choice", "must_call", "is_single"),
    [
        (None, (), False),
        ("auto", (), False),
        ("none", (), False),
        ("required", ("f", "g"), False),
        ({"type": "function", "function": {"name": "g"}}, ("g",), True),
    ],
)
async def test_the_house_is_told_which_tools_must_be_called(
    start: Start, choice: Any, must_call: tuple[str, ...], *, is_single: bool
):
    server = await start()
    assert (await server.chat(tools=TOOLS, tool_choice=choice)).status_code == 200
    (request,) = server.house.requests
    assert (request.prompt.must_call, request.prompt.is_single_call) == (must_call, is_single)
