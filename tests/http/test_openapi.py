"""That the OpenAPI document tells all, and the truth: of routes, fields, errors, and of what answers look like."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from memra.errors import OverloadedError
from memra.http.app import build_app
from memra.http.errors import HTTP_SHAPES, SHAPES
from memra.http.openapi import document
from memra.http.openapi.field_notes import FIELD_NOTES, note_of
from memra.http.openapi.operations import OPERATIONS, Operation
from memra.messages.generation import ReplyDelta, ReplyFinished, TokenLogprob, ToolCallDelta, Usage
from memra.settings import HttpSettings
from memra.types import StopCause
from tests.answer_schemas import AnswerSchemas

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = json.loads(document.make_document())
COMPONENTS = DOCUMENT["components"]["schemas"]
USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1, elapsed_s=0.25)
THOUGHT = ReplyDelta("", (1,), reasoning="hm")
CALLS = [
    ReplyDelta("", (3,), tool_calls=(ToolCallDelta(0, "{", "call_1", "f"),)),
    ReplyDelta("", (4,), tool_calls=(ToolCallDelta(0, "}"),)),
]
LIKELIHOOD = TokenLogprob(5, -0.5, ((5, -0.5), (6, float("-inf"))), b"\xc3", (b"\xc3", b"a"))
USER = [{"role": "user", "content": "hi"}]
ASKED: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 9},
}


@pytest.fixture(scope="module")
def schemas() -> AnswerSchemas:
    return AnswerSchemas(DOCUMENT)


async def test_the_server_gives_the_document_without_a_key(start: Any, fake_house: Any):
    server = await start(fake_house(valid_key="secret"))
    reply = await server.get("/openapi.json")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert reply.content == document.make_document()


def test_the_document_is_the_same_in_every_process():
    command = (
        "import sys; from memra.http.openapi.document import make_document; sys.stdout.buffer.write(make_document())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", command],
            check=True,
            capture_output=True,
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONHASHSEED": seed},
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert made == {document.make_document()}


def test_every_route_is_documented_and_every_documented_route_exists(fake_house: Any):
    app = build_app(fake_house(), HttpSettings(), fingerprint="f", has_keys=False)
    served = {
        (method.lower(), rule.rule.replace("<path:model_id>", "{id}"))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in {"HEAD", "OPTIONS"}
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}


def test_every_field_of_a_request_has_a_note_and_every_note_a_field():
    fields = {
        (name, field)
        for name in document.request_schemas(COMPONENTS)
        for field in COMPONENTS[name].get("properties", {})
    }
    assert [field for field in fields if note_of(*field) is None] == []
    read = {f"{name}.{field}" for name, field in fields}
    read |= {field for name, field in fields if f"{name}.{field}" not in FIELD_NOTES}
    assert set(FIELD_NOTES) - read == set()


def test_every_error_may_come_of_some_route():
    kinds = {kind for operation in OPERATIONS for kind in operation.errors}
    # No path and no method are nobody's errors.
    assert set(SHAPES) | set(HTTP_SHAPES) - {404, 405} == kinds


def test_every_schema_is_one():
    for name, schema in COMPONENTS.items():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        jsonschema_rs.Draft202012Validator(
            {"$ref": f"#/components/schemas/{name}", "components": {"schemas": COMPONENTS}}
        )


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("stop", StopCause)
async def test_answers_of_every_kind_are_as_documented(
    start: Any, fake_house: Any, schemas: AnswerSchemas, *, is_stream: bool, stop: StopCause
):
    script = [THOUGHT, ReplyDelta("a", (2,)), *CALLS]
    server = await start(fake_house(script=script, finish=ReplyFinished(stop, USAGE)))
    for path, asked in ASKED.items():
        reply = await server.post(path, {"model": "fake", "stream": is_stream, **asked})
        assert reply.status_code == 200
        schemas.check(path, 200, reply.headers["content-type"], reply.content)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_answers_that_fail_half_way_are_as_documented(
    start: Any, fake_house: Any, schemas: AnswerSchemas, *, is_stream: bool
):
    server = await start(fake_house(script=[ReplyDelta("a", (2,)), OverloadedError("No.")]))
    for path, asked in ASKED.items():
        reply = await server.post(path, {"model": "fake", "stream": is_stream, **asked})
        assert is_stream or reply.status_code in {503, 529}
        schemas.check(path, reply.status_code, reply.headers["content-type"], reply.content)


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.path in ASKED],
    ids=lambda operation: operation.path,
)
async def test_refusals_of_every_kind_are_as_documented(
    start: Any, fake_house: Any, schemas: AnswerSchemas, operation: Operation
):
    house = fake_house()
    server = await start(house)
    for error in operation.errors:
        if not isinstance(error, int):
            house.refusal = error("No.")
            reply = await server.post(operation.path, {"model": "fake", **ASKED[operation.path]})
            assert reply.status_code >= 400
            schemas.check(operation.path, reply.status_code, reply.headers["content-type"], reply.content)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_log_probabilities_are_as_documented(
    start: Any, fake_house: Any, schemas: AnswerSchemas, path: str, *, is_stream: bool
):
    server = await start(fake_house(script=[ReplyDelta("a", (5,), logprobs=(LIKELIHOOD,))]))
    asked = {"logprobs": True, "top_logprobs": 2} if "chat" in path else {"logprobs": 2}
    reply = await server.post(path, {"model": "fake", "stream": is_stream, **asked, **ASKED[path]})
    assert reply.status_code == 200, reply.text
    schemas.check(path, 200, reply.headers["content-type"], reply.content)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_servers_own_shape_is_as_documented(start: Any, schemas: AnswerSchemas, *, is_stream: bool):
    server = await start(has_keys=False)
    reply = await server.post("/v1/completions", {"model": "fake", "prompt": "hi", "stream": is_stream})
    assert "stop_reason" in reply.text
    schemas.check("/v1/completions", 200, reply.headers["content-type"], reply.content)


@pytest.mark.parametrize("path", [operation.path for operation in OPERATIONS if operation.method == "get"])
async def test_what_the_server_tells_of_itself_is_as_documented(start: Any, schemas: AnswerSchemas, path: str):
    server = await start()
    reply = await server.get(path.replace("{id}", "org/other"))
    assert reply.status_code in {200, 204}
    schemas.check(path, reply.status_code, reply.headers.get("content-type"), reply.content, method="get")


def test_an_answer_with_a_field_that_is_not_described_is_noticed(schemas: AnswerSchemas):
    answer = {"id": "r", "cancelled": True}
    schemas.check("/v1/cancel", 200, "application/json", json.dumps(answer).encode())
    with pytest.raises(AssertionError, match="odd"):
        schemas.check("/v1/cancel", 200, "application/json", json.dumps({**answer, "odd": 1}).encode())
