"""The tools that a request declares, as a parser asks for them.

Trade: names and the declared types of parameters. It refuses to validate schemas; whatever is odd has no type.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_STEPS = 8
"""A type that is more references and choices away than this is open; it stops schemas that refer to themselves."""


class DeclaredTools:
    """Tools by name."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Take declarations as OpenAI's interface shapes them; entries without a name are left out."""
        functions = [tool.get("function", tool) for tool in tools]
        self._schemas: dict[str, Mapping[str, Any]] = {
            function["name"]: function.get("parameters") or {} for function in functions if "name" in function
        }

    def __contains__(self, name: object) -> bool:
        """Whether a tool of that name is declared."""
        return name in self._schemas

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON schema of a declared tool's arguments; empty when there is none."""
        return self._schemas[name]

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have (`string`, `integer`, ...); empty when that is open."""
        return self.parameter(name, parameter).types

    def parameter(self, name: str, parameter: str) -> "DeclaredValue":
        """What is declared of a parameter."""
        schema = self._schemas[name]
        return DeclaredValue(schema, schema).member(parameter)


@dataclass(frozen=True, slots=True)
class DeclaredValue:
    """What is declared of one value, however deep inside of arguments.

    Attributes:
        schema: its own; empty when it is open.
        root: the schema that this one is a part of, and that references are looked up in.
    """

    schema: Mapping[str, Any]
    root: Mapping[str, Any]

    @property
    def types(self) -> frozenset[str]:
        """The JSON types that it may have; empty when that is open."""
        return _types_of(self.schema, self.root, _MAX_STEPS)

    def member(self, key: str) -> "DeclaredValue":
        """A member of the object that it is."""
        properties = self._resolved().get("properties")
        return self._inner(properties.get(key) if isinstance(properties, Mapping) else None)

    def item(self) -> "DeclaredValue":
        """Any item of the array that it is."""
        return self._inner(self._resolved().get("items"))

    def _inner(self, schema: object) -> "DeclaredValue":
        return DeclaredValue(schema if isinstance(schema, Mapping) else {}, self.root)

    def _resolved(self) -> Mapping[str, Any]:
        """The schema at the end of a row of references."""
        found: object = self.schema
        for _ in range(_MAX_STEPS):
            if not isinstance(found, Mapping) or not isinstance(reference := found.get("$ref"), str):
                break
            found = _resolve(reference, self.root)
        return found if isinstance(found, Mapping) else {}


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema allows; empty when that is open."""
    return DeclaredValue(schema, schema).types


def coerce(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that a dialect writes without quotes.

    Args:
        text: as written.
        types: what the schema allows; text that is JSON of none of these types becomes a string where one is allowed,
            and keeps its own type where none is.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _from_python(text, types) or json.dumps(text, ensure_ascii=False)
    if types and "string" in types and not types & _types_of_value(value):
        return json.dumps(text, ensure_ascii=False)
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return str(int(value))
    return text.strip()


def _from_python(text: str, types: frozenset[str]) -> str | None:
    """The JSON of a value that a model wrote as Python does, where no string is allowed; None when it is none."""
    if not types or "string" in types:
        return None
    if types & {"array", "object"}:
        try:
            return json.dumps(ast.literal_eval(text.strip()), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    return _PYTHON_NAMES.get(text.strip())


_PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _types_of_value(value: object) -> frozenset[str]:
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    return _TYPES.get(type(value), frozenset())


_TYPES: dict[type, frozenset[str]] = {
    type(None): frozenset({"null"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
}


def _types_of(wanted: object, root: Mapping[str, Any], steps_left: int) -> frozenset[str]:
    if not isinstance(wanted, Mapping) or steps_left == 0:
        return frozenset()
    if isinstance(reference := wanted.get("$ref"), str):
        return _types_of(_resolve(reference, root), root, steps_left - 1)
    if names := wanted.get("type"):
        several = names if isinstance(names, list) else [names]
        return frozenset(name for name in several if isinstance(name, str))
    choices = wanted.get("anyOf") or wanted.get("oneOf") or wanted.get("allOf")
    if isinstance(choices, list):
        found = [_types_of(choice, root, steps_left - 1) for choice in choices]
        return frozenset().union(*found) if all(found) else frozenset()
    values = wanted["enum"] if isinstance(wanted.get("enum"), list) else [wanted["const"]] if "const" in wanted else []
    return frozenset().union(*map(_types_of_value, values))


def _resolve(reference: str, root: Mapping[str, Any]) -> object:
    """What a reference within the schema (`#/$defs/Name`) points to, or None."""
    found: object = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
