"""Every kind of error has its row: status, type, code and advice on trying again."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memra import errors
from memra.http.errors import HTTP_SHAPES, MALFORMED_SHAPES, SHAPES, reply_to

Start = Callable[..., Awaitable[Any]]
LIMIT_NAMES = ("limit", "remaining", "reset")
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def leaves(kind: type[errors.RequestError]) -> set[type[errors.RequestError]]:
    return {kind}.union(*(leaves(child) for child in kind.__subclasses__() if child.__module__ == errors.__name__))


@pytest.mark.parametrize(
    "kind", sorted(leaves(errors.RequestError) - {errors.RequestError}, key=lambda kind: kind.__name__)
)
async def test_a_refusal_has_the_status_of_its_kind(start: Start, fake_house: Any, kind: type[errors.RequestError]):
    shape = next(SHAPES[base] for base in kind.__mro__ if base in SHAPES)
    server = await start(fake_house(refusal=kind("One sentence.", param="messages")))
    for stream in (False, True):
        reply = await server.chat(stream=stream)
        assert reply.status_code == shape.status
        assert reply.json() == {
            "error": {"message": "One sentence.", "type": shape.type, "param": "messages", "code": shape.code}
        }
        assert reply.headers["x-request-id"].startswith("chatcmpl-")


@pytest.mark.parametrize(("wait", "seconds"), [(0.0, 1), (1.2, 2), (5, 5), (1e9, 60)])
async def test_a_busy_server_says_when_to_come_back(start: Start, fake_house: Any, wait: float, seconds: int):
    server = await start(fake_house(refusal=errors.BusyError("Full.", retry_after_s=wait)))
    headers = (await server.chat()).headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == (str(seconds), str(seconds * 1000))
    assert "x-should-retry" not in headers


@pytest.mark.parametrize("kind", [errors.BusyError, errors.OverloadedError])
@pytest.mark.parametrize(("remaining", "reset"), [(0, "7"), (2, "0")])
async def test_a_refusal_tells_of_the_slots_that_were_looked_at(
    start: Start, fake_house: Any, kind: type[errors.BusyError], remaining: int, reset: str
):
    refusal = kind("Full.", retry_after_s=6.2, slots_limit=4, slots_remaining=remaining)
    server = await start(fake_house(refusal=refusal))
    for stream in (False, True):
        headers = (await server.chat(stream=stream)).headers
        assert [headers[f"x-ratelimit-{name}"] for name in LIMIT_NAMES] == ["4", str(remaining), reset]


async def test_a_refusal_before_the_slots_tells_nothing_of_them(start: Start, fake_house: Any):
    server = await start(fake_house(refusal=errors.DrainingError("Going down.")))
    assert not [name for name in (await server.chat()).headers if name.startswith("x-ratelimit")]


async def test_an_answer_that_fails_after_admission_tells_of_its_slot(start: Start, fake_house: Any):
    server = await start(fake_house(script=[errors.OverloadedError("No memory is left.", retry_after_s=3)]))
    reply = await server.chat()
    assert reply.status_code == 503
    assert [reply.headers[f"x-ratelimit-{name}"] for name in LIMIT_NAMES] == ["4", "3", "0"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errors.UnknownModelError("x"), "false"),
        (errors.AuthenticationError("x"), "false"),
        (errors.BusyError("x"), None),
        (errors.EngineFaultError("x"), None),
        (errors.DrainingError("x"), None),
    ],
)
def test_final_refusals_say_so(error: errors.RequestError, advice: str | None):
    assert reply_to(error).headers.get("x-should-retry") == advice


@pytest.mark.parametrize(
    ("status", "kind", "headers"),
    [
        (401, "authentication_error", {"x-should-retry": "false"}),
        (402, "invalid_request_error", {"x-should-retry": "false"}),
        (403, "authentication_error", {"x-should-retry": "false"}),
        (429, "rate_limit_error", {"Retry-After": "3", "retry-after-ms": "3000"}),
        (503, "server_error", {"Retry-After": "3", "retry-after-ms": "3000"}),
    ],
)
def test_a_plugin_denies_with_a_status_a_code_and_words_of_its_own(status: int, kind: str, headers: dict[str, str]):
    wait = 2.1 if "Retry-After" in headers else None
    reply = reply_to(errors.DeniedError("Not on Sundays.", status=status, code="closed", retry_after_s=wait))
    assert (reply.status, reply.headers) == (status, headers)
    assert msgspec.json.decode(reply.body) == {
        "error": {"message": "Not on Sundays.", "type": kind, "param": None, "code": "closed"}
    }


def test_a_group_of_one_is_that_one():
    assert reply_to(ExceptionGroup("g", [ExceptionGroup("h", [errors.UnknownModelError("x")])])).status == 400


async def test_a_fault_is_logged_under_the_request_id_and_not_told(
    start: Start, fake_house: Any, caplog: pytest.LogCaptureFixture
):
    server = await start(fake_house(refusal=ZeroDivisionError("a secret")))
    reply = await server.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "engine_error")
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text
    assert "a secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


async def test_an_unknown_path_is_json(start: Start):
    server = await start()
    for path in ("/nowhere", "/v1/models/", "/v1/../etc", "/%2e%2e"):
        reply = await server.get(path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_a_wrong_method_is_json_and_lists_the_right_ones(start: Start):
    reply = await (await start()).get("/v1/chat/completions")
    assert (reply.status_code, reply.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "POST" in reply.headers["allow"]


def test_the_reference_lists_exactly_what_is_sent():
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \| (?:`(\w+)`|null) \|", REFERENCE.read_text(), flags=re.MULTILINE)
    shapes = {*SHAPES.values(), *HTTP_SHAPES.values(), *MALFORMED_SHAPES.values()}
    assert {(int(status), kind, code or None) for status, kind, code in rows} == {
        (shape.status, shape.type, shape.code) for shape in shapes
    }
