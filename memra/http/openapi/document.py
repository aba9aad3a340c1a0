"""The OpenAPI 3.1 document: the table of operations written down, with the schemas that requests are validated by.

Made once; equal programs give equal bytes, whatever they serve. Refuses to know what is in the table. Called
by `memra.http.routes.openapi`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from memra import __version__
from memra.http.errors import HTTP_SHAPES, SHAPES, ErrorShape
from memra.http.openapi.error_shapes import ErrorBody, MessagesErrorBody
from memra.http.openapi.field_notes import note_of
from memra.http.openapi.operations import OPERATIONS, ErrorKind, Operation, StreamEvent
from memra.http.wire.messages_error import messages_status, speaks_messages
from memra.types import Lane

_REF = "#/components/schemas/{name}"
_JSON = "application/json"
_EVENTS = "text/event-stream"
_TEXT = "text/plain"
_UNCHECKED = "The whole body."
"""A docstring that tells a reader of the document nothing."""

_DESCRIPTION = (
    "Fields that are not listed are ignored, and a null means the default. A field that is listed and cannot be "
    "honoured is refused by name. Other fields may be added to answers."
)
_HEADERS: Mapping[str, Any] = {
    "RequestId": {"description": "The id of the request, as in the answer.", "schema": {"type": "string"}},
    "RetryAfter": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}},
}
_PARAMETERS: Mapping[str, Any] = {
    "Lane": {
        "name": "x-lane",
        "in": "header",
        "description": "The class of service.",
        "schema": {"type": "string", "enum": [lane.value for lane in Lane], "default": Lane.INTERACTIVE.value},
    },
    "Conversation": {
        "name": "x-session-id",
        "in": "header",
        "description": "Names the conversation, where no field of the body does.",
        "schema": {"type": "string"},
    },
}
_SECURITY: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


@cache
def make_document() -> bytes:
    """Return the document as JSON; the first call takes some 30 ms."""
    references, components = _schemas()
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for operation in OPERATIONS:
        paths[operation.path][operation.method] = _operation(operation, references)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "memra", "version": __version__, "description": _DESCRIPTION},
        "security": [{}, *({name: []} for name in _SECURITY)],
        "paths": dict(paths),
        "components": {
            "schemas": components,
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "securitySchemes": _SECURITY,
        },
    }
    return msgspec.json.encode(document)


def _schemas() -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """Return what stands in place of each type of the table, and the schemas by name, with their fields' notes."""
    types = list(dict.fromkeys(kind for operation in OPERATIONS for kind in _types(operation)))
    shown, components = msgspec.json.schema_components(types, ref_template=_REF)
    requests = request_schemas(components)
    for name, schema in components.items():
        if schema.get("description") == _UNCHECKED:
            del schema["description"]
        if name in requests:
            _annotate(name, schema)
    return dict(zip(types, shown, strict=True)), dict(sorted(components.items()))


def _types(operation: Operation) -> Iterator[Any]:
    given = (operation.body, operation.answer, operation.own_answer, operation.unready, *operation.refusals.values())
    yield from (kind for kind in given if kind is not None)
    yield from (event.data for event in operation.stream if not isinstance(event.data, str))
    yield from (ErrorBody, MessagesErrorBody)


def request_schemas(components: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of those among the schemas that a request is made of."""
    found: set[str] = set()
    waiting = [operation.body.__name__ for operation in OPERATIONS if operation.body is not None]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _referred(components[name])
    return frozenset(found)


def _referred(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _referred(inner)


def _annotate(name: str, schema: dict[str, Any]) -> None:
    """Add to each field what its note says of it."""
    for field, shape in schema.get("properties", {}).items():
        note = note_of(name, field)
        if note is not None:
            shape |= {**({"description": note.text} if note.text else {}), **note.bounds}


def _operation(operation: Operation, references: Mapping[Any, Any]) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": _operation_id(operation),
    }
    parameters = list(operation.parameters)
    if operation.body is not None:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in _PARAMETERS]
        shape["requestBody"] = {"required": True, "content": {_JSON: {"schema": references[operation.body]}}}
    if parameters:
        shape["parameters"] = parameters
    return {**shape, "responses": _responses(operation, references)}


def _operation_id(operation: Operation) -> str:
    words = operation.path.replace("{", "").replace("}", "").replace(".", "/").split("/")
    return "_".join([operation.method, *filter(None, words)])


def _responses(operation: Operation, references: Mapping[Any, Any]) -> dict[str, Any]:
    answer = _answer(operation, references)
    responses: dict[str, Any] = {"200" if "content" in answer else "204": answer}
    if operation.unready is not None:
        content = {_JSON: {"schema": references[operation.unready]}}
        responses["503"] = {"description": "No.", "headers": _shared_headers("RetryAfter"), "content": content}
    for status, codes in sorted(_refusals(operation).items()):
        responses.setdefault(str(status), _refusal(operation, status, codes, references))
    return responses


def _answer(operation: Operation, references: Mapping[Any, Any]) -> dict[str, Any]:
    shape = {"description": "The answer.", "headers": _shared_headers("RequestId")}
    content: dict[str, Any] = {}
    if operation.answer is not None:
        schema = references[operation.answer]
        if operation.own_answer is not None:
            schema = {"anyOf": [schema, references[operation.own_answer]]}
        content[_JSON] = {"schema": schema}
    if operation.stream:
        content[_EVENTS] = _stream(operation, references)
    if operation.has_text:
        content[_TEXT] = {"schema": {"type": "string"}}
    return {**shape, "content": content} if content else {**shape, "description": "Nothing."}


def _stream(operation: Operation, references: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what any event of a streamed answer is, as OpenAPI 3.2 has it: 3.1 has no words for events."""
    text = "An event, with `stream` true; the lines between that begin with a colon keep the connection alive."
    return {"schema": {"description": text, "anyOf": [_event(event, references) for event in operation.stream]}}


def _event(event: StreamEvent, references: Mapping[Any, Any]) -> dict[str, Any]:
    if isinstance(event.data, str):
        data: dict[str, Any] = {"const": event.data}
    else:
        data = {"type": "string", "contentMediaType": _JSON, "contentSchema": references[event.data]}
    name = {} if event.event is None else {"event": {"const": event.event}}
    return {"type": "object", "properties": {**name, "data": data}, "required": [*name, "data"]}


def _refusals(operation: Operation) -> Mapping[int, list[str]]:
    """Return the codes of what may be refused, by status."""
    codes: defaultdict[int, list[str]] = defaultdict(list)
    for kind in operation.errors:
        shape = _error_shape(kind)
        status = messages_status(shape) if speaks_messages(operation.path) else shape.status
        codes[status].append(f"`{shape.code or shape.type}`")
    return codes


def _error_shape(kind: ErrorKind) -> ErrorShape:
    return HTTP_SHAPES[kind] if isinstance(kind, int) else SHAPES[kind]


def _refusal(operation: Operation, status: int, codes: list[str], references: Mapping[Any, Any]) -> dict[str, Any]:
    usual = MessagesErrorBody if speaks_messages(operation.path) else ErrorBody
    schema = references[operation.refusals.get(status, usual)]
    return {"description": ", ".join(dict.fromkeys(codes)), "content": {_JSON: {"schema": schema}}}


def _shared_headers(name: str) -> dict[str, Any]:
    wire = {"RequestId": "x-request-id", "RetryAfter": "Retry-After"}
    return {wire[name]: {"$ref": f"#/components/headers/{name}"}}
