"""Tools whose schemas are odd, in every dialect: a grammar, a parser, and no fault, whatever a client declares."""

from typing import Any

import pytest

from memra.chat.tool_dialects.contract import ToolDialect
from memra.chat.tool_dialects.registry import DIALECTS, GENERIC

ODD: tuple[dict[str, Any], ...] = (
    {"required": True},
    {"required": ["a", 1, ["a"], None]},
    {"required": "a"},
    {"properties": ["a"]},
    {"properties": {"a": None}},
    {"properties": {"a": True, "b": [], "c": {"$ref": 1}}},
    {"properties": {"a": {"type": {"x": 1}, "enum": "x"}}},
    {"properties": {"a": {"type": "string", "enum": [1, None, {}]}}, "required": None},
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"properties": {"a": {"anyOf": "x", "allOf": [3]}}, "$defs": 3},
    {"properties": {"": {"type": "string"}, "\n": {"type": "string"}, '"': {"type": "integer"}}},
    {"type": "array"},
)


@pytest.mark.parametrize("dialect", [*DIALECTS, GENERIC], ids=lambda dialect: dialect.name)
def test_an_odd_schema_is_no_fault(dialect: ToolDialect):
    for parameters in ODD:
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        for at_least_one in (False, True):
            assert "start: " in dialect.grammar(tools, names=["f"], at_least_one=at_least_one)
        parser = dialect.open(tools)
        parser.feed("<tool_call>\n" + '{"name": "f", "arguments": {"a": 1}}' + "\n</tool_call>")
        parser.finish()


@pytest.mark.parametrize("dialect", [*DIALECTS, GENERIC], ids=lambda dialect: dialect.name)
def test_what_is_required_is_asked_for(dialect: ToolDialect):
    """The rules differ where the schema does, so the odd ones above were really read."""
    properties = {"a": {"type": "integer"}, "b": {"type": "integer"}}

    def grammar(required: Any) -> str:
        parameters = {"type": "object", "properties": properties, "required": required}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        return dialect.grammar(tools, names=["f"], at_least_one=False)

    assert grammar(["a"]) != grammar([])
