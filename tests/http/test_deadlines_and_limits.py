"""Deadlines, refusals by load, slots and names of conversations, on the wire."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra import errors
from memra.messages.generation import ReplyFinished, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
LATE = ReplyFinished(StopCause.DEADLINE, Usage(3, 2, 1, 0.5))


def body(path: str, wire: Any, **fields: Any) -> dict[str, Any]:
    return wire.chat(**fields) if path == CHAT else {"model": "fake", "prompt": "hi", **fields}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_answer_cut_by_its_deadline_has_what_was_there_and_the_error_beside_it(
    start: Start, fake_house: Any, wire: Any, path: str
):
    server = await start(fake_house(finish=LATE))
    reply = await server.post(path, body(path, wire))
    answer = reply.json()
    (choice,) = answer["choices"]
    assert reply.status_code == 200
    assert choice["finish_reason"] == "error"
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == "Hello"
    assert answer["usage"]["completion_tokens"] == 2
    assert answer["error"].pop("message").startswith("The deadline passed before the answer was complete")
    assert answer["error"] == {"type": "timeout", "param": None, "code": "deadline_exceeded"}


async def test_the_native_shape_names_the_deadline(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(finish=LATE), has_keys=False)
    answer = (await server.post(COMPLETIONS, body(COMPLETIONS, wire))).json()
    assert (answer["stop_reason"], answer["text"], answer["error"]["code"]) == (
        "Deadline",
        "Hello",
        "deadline_exceeded",
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_complete_answer_has_no_error_beside_it(start: Start, wire: Any, path: str):
    assert "error" not in (await (await start()).post(path, body(path, wire))).json()


async def test_a_deadline_without_a_token_is_a_408_or_an_event(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=[errors.DeadlineExceededError("Late.")]))
    reply = await server.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (408, "deadline_exceeded")
    assert "retry-after" not in reply.headers
    assert "x-should-retry" not in reply.headers
    stream = await server.chat(stream=True)
    assert stream.status_code == 200
    error, done = wire.events(stream.text)
    assert (error["error"]["type"], error["error"]["code"], done) == ("timeout", "deadline_exceeded", "[DONE]")
    assert server.house.num_open == 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_the_house_is_told_of_deadline_conversation_and_salt(start: Start, wire: Any, path: str):
    server = await start()
    await server.post(path, body(path, wire, timeout_ms=5000, stream=True, session_id=" s ", cache_salt="pepper"))
    await server.post(path, body(path, wire))
    asked, plain = server.house.requests
    assert (asked.timeout_ms, asked.is_stream, asked.affinity, asked.cache_salt) == (5000, True, "s", "pepper")
    assert (plain.timeout_ms, plain.is_stream, plain.affinity, plain.cache_salt) == (None, False, None, "")
    assert "pepper" not in repr(asked)


@pytest.mark.parametrize(
    ("fields", "header", "affinity"),
    [
        ({"session_id": "s", "user": "u"}, "h", "s"),
        ({"session_id": " ", "user": "u"}, "h", "u"),
        ({"user": ""}, "h", "h"),
        ({}, "", None),
    ],
)
async def test_the_conversation_is_named_by_field_before_user_before_header(
    start: Start, wire: Any, fields: dict[str, str], header: str, affinity: str | None
):
    server = await start()
    await server.post(CHAT, wire.chat(**fields), x_session_id=header)
    assert server.house.requests[0].affinity == affinity


async def test_a_long_name_in_the_header_is_refused(start: Start, wire: Any):
    server = await start()
    reply = await server.post(CHAT, wire.chat(), x_session_id="x" * 257)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "x-session-id")
    assert server.house.requests == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.QueueFullError, "shed_queue"),
        (errors.DeadlineUnreachableError, "shed_deadline"),
        (errors.QueueWaitError, "shed_queue_wait"),
    ],
)
async def test_a_refusal_by_load_tells_wait_and_slots(
    start: Start, fake_house: Any, kind: type[errors.BusyError], code: str
):
    refusal = kind("Busy.", retry_after_s=12.3, slots_limit=4, slots_remaining=0)
    refusal.slots_reset_s = 90
    server = await start(fake_house(refusal=refusal))
    for stream in (False, True):
        reply = await server.chat(stream=stream)
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, code)
        assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("13", "13000")
        assert (reply.headers["x-ratelimit-limit"], reply.headers["x-ratelimit-reset"]) == ("4", "90")


async def test_the_lanes_are_json(start: Start):
    server = await start()
    await server.chat()
    assert (await server.get("/yield/metrics")).json() == {"lanes": {}, "batch_size_last": 1}
