"""Values without quotes become what the schema says they are."""

import json
from typing import Any

import pytest

from memra.chat.tool_dialects.declared_tools import DeclaredTools, coerce
from memra.chat.tool_dialects.glm import GlmDialect
from memra.chat.tool_dialects.qwen_xml import QwenXmlDialect
from tests.chat.tool_dialects.written_answers import calls_of, read


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"integer"}, 5),
        ("5.0", {"integer"}, 5),
        ("5", {"string"}, "5"),
        ("true", {"boolean"}, True),
        ("True", {"boolean"}, True),
        ("None", {"integer", "null"}, None),
        ("null", {"string", "null"}, None),
        ("7", {"string", "integer"}, 7),
        ("seven", {"integer"}, "seven"),
        ('{"a": 1}', {"object"}, {"a": 1}),
        ("{'a': True}", {"object"}, {"a": True}),
        ("[1, 2]", {"array"}, [1, 2]),
        ('["x"]', {"string"}, '["x"]'),
        ("plain", set(), "plain"),
        ("3", set(), 3),
        ("NaN", {"number"}, "NaN"),
        ("1e999999", {"number"}, None),
        ("[" * 100_000, {"array"}, "[" * 100_000),
    ],
)
def test_a_value_takes_a_declared_type_where_it_can(text: str, types: set[str], value: object) -> None:
    written = coerce(text, frozenset(types))
    if text != "1e999999":
        assert json.loads(written) == value
        assert type(json.loads(written)) is type(value)
    assert json.loads(written, parse_constant=pytest.fail) is not None or value is None


def _types(schema: dict[str, Any], **root: object) -> frozenset[str]:
    parameters = {"type": "object", "properties": {"x": schema}, **root}
    return DeclaredTools([{"function": {"name": "f", "parameters": parameters}}]).types("f", "x")


def test_types_are_found_through_choices_enums_and_references() -> None:
    assert _types({"anyOf": [{"type": "string"}, {"type": "null"}]}) == {"string", "null"}
    assert _types({"type": ["integer", "null"]}) == {"integer", "null"}
    assert _types({"enum": ["a", "b"]}) == {"string"}
    assert _types({"const": 3}) == {"integer", "number"}
    assert _types({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"type": "boolean"}}}) == {"boolean"}
    assert _types({"anyOf": [{"type": "string"}, {}]}) == frozenset()


def test_a_schema_that_refers_to_itself_is_open() -> None:
    assert _types({"$ref": "#/properties/x"}) == frozenset()


def test_odd_declarations_have_no_type() -> None:
    tools = DeclaredTools([{"function": {"name": "f", "parameters": {"properties": {"x": True}}}}, {"type": "other"}])
    assert "f" in tools
    assert tools.types("f", "x") == tools.types("f", "y") == frozenset()


def test_a_string_keeps_its_inner_line_breaks_and_loses_those_of_the_format() -> None:
    answer = "<tool_call>\n<function=search>\n<parameter=city>\n\n a\nb \n\n</parameter>\n</function>\n</tool_call>"
    assert calls_of(read(QwenXmlDialect(), list(answer))) == [("search", {"city": "\n a\nb \n"})]


def test_an_outer_tag_may_be_missing_and_json_may_stand_inside_it() -> None:
    answer = "Now.\n<function=now>\n</function>\n</tool_call>"
    assert calls_of(read(QwenXmlDialect(), list(answer))) == [("now", {})]
    answer = '<tool_call>\n{"name": "search", "arguments": {"days": 1}}\n</tool_call>'
    assert calls_of(read(QwenXmlDialect(), list(answer))) == [("search", {"days": 1})]


def test_an_undeclared_parameter_is_whatever_it_looks_like() -> None:
    pairs = "<arg_key>a</arg_key><arg_value>3</arg_value><arg_key>b</arg_key><arg_value>x y</arg_value>"
    answer = f"<tool_call>now{pairs}</tool_call>"
    assert calls_of(read(GlmDialect(), list(answer))) == [("now", {"a": 3, "b": "x y"})]
