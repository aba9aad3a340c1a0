"""That docs/reference/api.md says what `GET /openapi.json` says."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memra.http.openapi.document import make_document

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
_INTRODUCTION = """# API

Every public route, with what it takes and what it answers. This page is made from the document that
`GET /openapi.json` gives, which programs can make clients from, and which is made from the schemas that requests are
validated by. Fields that are not listed are ignored; a null means the default; a field that is listed and cannot be
honoured is refused by name. What errors mean, and when to try again, is in [errors.md](errors.md); more about two of
the shapes in [responses-and-messages.md](responses-and-messages.md).

Where keys are asked for, every route that takes a body needs one: `Authorization: Bearer KEY`, or `x-api-key: KEY`.
Those routes also read `x-lane` (the class of service) and `x-session-id` (the conversation)."""


def test_the_reference_page_is_made_from_the_document():
    assert PAGE.read_text(encoding="utf-8") == api_page(), "run: python tests/http/test_api_page.py"


def api_page() -> str:
    """The text of docs/reference/api.md."""
    document = json.loads(make_document())
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    lines = [_INTRODUCTION, "", "| route | |", "|---|---|"]
    lines += [f"| `{method} {path}` | {operation['summary']} |" for method, path, operation in operations]
    for method, path, operation in operations:
        lines += ["", f"## {method} {path}", "", operation["summary"], "", *_operation(operation)]
    lines += ["", "# Schemas"]
    for name, schema in document["components"]["schemas"].items():
        lines += ["", f"## {name}", "", *_schema(schema)]
    return "\n".join(lines).rstrip() + "\n"


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if "name" in parameter:
            yield f"- `{parameter['name']}` ({parameter['in']}): {parameter['description']}"
    if "requestBody" in operation:
        yield f"- takes {_content(operation['requestBody']['content'])}"
    for status, response in operation["responses"].items():
        codes = f": {response['description']}" if "`" in response["description"] else ""
        yield f"- {status} {_content(response.get('content', {}))}{codes}"
        for event in response.get("content", {}).get("text/event-stream", {}).get("schema", {}).get("anyOf", ()):
            yield f"  - {_event(event['properties'])}"


def _event(fields: Mapping[str, Any]) -> str:
    data = fields["data"]
    words = _type(data["contentSchema"]) if "contentSchema" in data else f"`{data['const']}`"
    return f"{fields['event']['const'] if 'event' in fields else 'data'}: {words}"


def _content(content: Mapping[str, Any]) -> str:
    words = {"text/event-stream": "server-sent events", "text/plain": "text"}
    kinds = [words.get(kind) or _type(shape["schema"]) for kind, shape in content.items()]
    return ", or ".join(kinds) or "nothing"


def _schema(schema: Mapping[str, Any]) -> Iterator[str]:
    if "description" in schema:
        yield schema["description"]
        yield ""
    if "enum" in schema:
        yield _type(schema)
    if schema.get("properties"):
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        required = schema.get("required", ())
        for name, shape in schema["properties"].items():
            mark = " (required)" if name in required and "anyOf" not in shape else ""
            yield f"| `{name}` | {_type(shape).replace('|', chr(92) + '|')}{mark} | {shape.get('description', '')} |"


def _type(schema: Mapping[str, Any]) -> str:
    """The words for a type: its name, its choices or its bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum") or [schema["const"]])
    return _kind(schema) + _bounds(schema)


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else kind


_BOUNDS: Mapping[str, str] = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "maxProperties": "at most {}",
    "pattern": "that match `{}`",
}


def _bounds(schema: Mapping[str, Any]) -> str:
    words = [text.format(schema[keyword]) for keyword, text in _BOUNDS.items() if keyword in schema]
    return f", {' '.join(words)}" if words else ""


if __name__ == "__main__":
    PAGE.write_text(api_page(), encoding="utf-8")
