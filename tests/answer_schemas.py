"""What the server says of its own answers, taken at its word: every answer and every event must be as documented.

Stricter than the document in one thing: an answer may hold no field that is not described.
"""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs


class AnswerSchemas:
    """Checks answers against an OpenAPI document; may be used by several threads."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._paths = document["paths"]
        self._components = _closed(document["components"])
        self._validators: dict[str, Any] = {}

    def check(self, path: str, status: int, content_type: str | None, content: bytes, *, method: str = "post") -> None:
        """Fail unless the answer has a documented status, type and shape."""
        responses = self._paths[path][method]["responses"]
        assert str(status) in responses, f"status {status} is not documented: {content[:500]!r}"
        kinds = responses[str(status)].get("content", {})
        if not kinds:
            assert content == b""
            return
        kind = (content_type or "").partition(";")[0]
        assert kind in kinds, f"{kind} is not documented for {status}"
        if kind == "application/json":
            self._check(json.loads(content), kinds[kind]["schema"])
        elif kind == "text/event-stream":
            self._check_events(content.decode(), kinds[kind]["schema"]["anyOf"])

    def _check_events(self, text: str, events: list[Mapping[str, Any]]) -> None:
        assert text.endswith("\n\n"), text[-200:]
        for block in text.removesuffix("\n\n").split("\n\n"):
            if not block.startswith(":"):
                self._check_event(block, events)

    def _check_event(self, block: str, events: list[Mapping[str, Any]]) -> None:
        *names, line = block.split("\n")
        assert line.startswith("data: "), block
        name = {"const": names[0].removeprefix("event: ")} if names else None
        known = [event["properties"]["data"] for event in events if event["properties"].get("event") == name]
        assert known, f"no event {names} is documented"
        data = line.removeprefix("data: ")
        if {"const": data} not in known:
            self._check(json.loads(data), {"anyOf": [shape["contentSchema"] for shape in known if "type" in shape]})

    def _check(self, value: Any, schema: Mapping[str, Any]) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = {**_closed(schema), "components": self._components}
            self._validators[key] = jsonschema_rs.Draft202012Validator(whole)
        for error in self._validators[key].iter_errors(value):
            place = "/".join(map(str, error.instance_path))
            raise AssertionError(f"{place}: {error.message} in {json.dumps(value)[:2000]}")


def _closed(schema: Any) -> Any:
    """The same schema, in which objects of known fields have no others."""
    if isinstance(schema, list):
        return [_closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(inner) for key, inner in schema.items()}
    if closed.get("type") == "object" and "properties" in closed and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed
