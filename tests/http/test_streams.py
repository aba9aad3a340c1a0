"""Streamed answers: framing, failures half-way, clients that leave or do not read."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import h2.connection
import h2.settings
import httpx
import pytest
import trio
import trio.testing
from h2.settings import SettingCodes

import memra.http.generation
from memra.errors import EngineFaultError, OverloadedError
from memra.messages.generation import ReplyDelta

Start = Callable[..., Awaitable[Any]]
CHAT = "/v1/chat/completions"


async def test_a_chat_stream_has_the_openai_shape(start: Start, wire: Any):
    server = await start()
    reply = await server.chat(stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (reply.headers["cache-control"], reply.headers["x-accel-buffering"]) == ("no-cache", "no")
    first, second, last, done = wire.events(reply.text)
    assert done == "[DONE]"
    assert [first["choices"][0]["delta"], second["choices"][0]["delta"], last["choices"][0]["delta"]] == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in (first, second, last)] == [None, None, "stop"]
    assert ("usage" in first, last["usage"]["total_tokens"]) == (False, 5)
    for chunk in (first, second, last):
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["id"] == reply.headers["x-request-id"]
        assert (chunk["model"], chunk["system_fingerprint"]) == ("fake", "memra-test-000000000000")
        assert chunk["created"] == first["created"]


async def test_a_stream_without_text_still_delivers_the_role(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=[ReplyDelta("", (1,))]))
    first, last, _ = wire.events((await server.chat(stream=True)).text)
    assert first["choices"][0] == {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    assert last["choices"][0]["delta"] == {}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_include_usage_gives_the_usage_a_chunk_of_its_own(start: Start, wire: Any, path: str):
    server = await start()
    body = {**wire.chat(stream=True, stream_options={"include_usage": True}), "prompt": "hi"}
    *chunks, usage, done = wire.events((await server.post(path, body)).text)
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 2)
    assert len(chunks) == 3
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_any_text_survives_the_framing(start: Start, fake_house: Any, wire: Any):
    texts = ["é", "😀", "\n\ndata: [DONE]\n\n", "\u2028", '"\\', "\x00\x7f", "日本"]
    server = await start(fake_house(script=texts))
    chunks = wire.events((await server.chat(stream=True)).text)[:-2]
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == texts


async def test_the_head_and_every_delta_leave_at_once(start: Start, fake_house: Any, wire: Any):
    gates = [trio.Event(), trio.Event()]
    server = await start(fake_house(script=[gates[0], "one", gates[1], "two"]))
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat(stream=True)))
        with trio.fail_after(2):
            # A first byte of the body as well: some proxies hold the head back until there is one.
            assert (await wire.read_until(stream, b": keepalive\n\n")).startswith(b"HTTP/1.1 200")
            gates[0].set()
            await wire.read_until(stream, b'"one"')
            gates[1].set()
            await wire.read_until(stream, b"[DONE]")


async def test_a_refusal_comes_before_the_stream(start: Start, fake_house: Any):
    server = await start(fake_house(refusal=OverloadedError("No memory is left; try again.", retry_after_s=5)))
    reply = await server.chat(stream=True)
    assert (reply.status_code, reply.headers["content-type"]) == (503, "application/json")
    assert reply.json()["error"]["code"] == "overloaded"


async def test_a_failure_half_way_is_an_event_and_the_end(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=["Hel", EngineFaultError("The engine failed.")]))
    reply = await server.chat(stream=True)
    first, error, done = wire.events(reply.text)
    assert (reply.status_code, first["choices"][0]["delta"]["content"], done) == (200, "Hel", "[DONE]")
    assert error == {
        "error": {"message": "The engine failed.", "type": "server_error", "param": None, "code": "engine_error"}
    }
    assert server.house.num_open == 0


async def test_a_fault_half_way_is_logged_and_not_told(
    start: Start, fake_house: Any, wire: Any, caplog: pytest.LogCaptureFixture
):
    server = await start(fake_house(script=["Hel", KeyError("a secret")]))
    reply = await server.chat(stream=True)
    assert wire.events(reply.text)[1]["error"]["code"] == "engine_error"
    assert "secret" not in reply.text
    assert "a secret" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


async def test_a_stream_that_ends_too_early_says_so(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(finish=None))
    *_, error, done = wire.events((await server.chat(stream=True)).text)
    assert (error["error"]["code"], done) == ("overloaded", "[DONE]")


async def test_the_slot_is_free_before_the_end_of_the_stream_is_seen(start: Start):
    server = await start()
    await server.chat(stream=True)
    assert server.house.num_open == 0


@pytest.mark.parametrize("before", [[], ["Hel"]], ids=["before-the-first-token", "in-the-middle"])
async def test_a_client_that_leaves_cancels_its_stream(start: Start, fake_house: Any, wire: Any, before: list[str]):
    server = await start(fake_house(script=[*before, trio.Event()]))
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat(stream=True)))
        await wire.read_until(stream, b'"Hel"' if before else b"\r\n\r\n")
    with trio.fail_after(1):
        await server.house.freed.wait()
    assert server.house.num_open == 0


async def test_clients_that_leave_at_once_leave_nothing_open(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=["x" * 1000] * 5))
    for _ in range(20):
        async with await server.connect() as stream:
            await stream.send_all(wire.post(wire.chat(stream=True)))
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert server.house.num_open == 0


async def test_a_fault_between_opening_and_streaming_frees_the_reply(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise ValueError("broken on purpose")

    monkeypatch.setattr(memra.http.generation, "EventStream", fail)
    server = await start()
    assert (await server.chat(stream=True)).status_code == 500
    assert server.house.opened.is_set()
    with trio.fail_after(1):
        await server.house.freed.wait()
    assert "broken on purpose" in caplog.text


async def test_a_client_that_does_not_read_is_cut_off_and_freed(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=["x" * 100_000] * 200), write_timeout_s=0.2)
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat(stream=True)))
        with trio.fail_after(3):
            await server.house.freed.wait()


async def test_a_client_on_http2_that_grants_no_window_holds_nothing(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=["x" * 100_000] * 2))
    client = h2.connection.H2Connection()
    client.local_settings = h2.settings.Settings(initial_values={SettingCodes.INITIAL_WINDOW_SIZE: 0})
    client.initiate_connection()
    head = {":method": "POST", ":path": CHAT, ":scheme": "http", ":authority": "x", "content-type": "application/json"}
    client.send_headers(1, list(head.items()))
    client.send_data(1, json.dumps(wire.chat(stream=True)).encode(), end_stream=True)
    async with await server.connect() as stream:
        await stream.send_all(client.data_to_send())
        with trio.fail_after(3):
            await server.house.freed.wait()


async def test_http2_streams_a_whole_answer(start: Start, wire: Any):
    server = await start()
    async with httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client:
        reply = await client.post(server.url + CHAT, json=wire.chat(stream=True))
    assert wire.events(reply.text)[-1] == "[DONE]"


async def test_a_silent_stream_sends_comments_also_before_the_first_token(start: Start, fake_house: Any, wire: Any):
    gates = [trio.Event(), trio.Event()]
    server = await start(fake_house(script=[gates[0], "one", gates[1]]), keepalive_comment_s=0.02)
    async with await server.connect() as stream:
        await stream.send_all(wire.post(wire.chat(stream=True)))
        with trio.fail_after(2):
            for _ in range(3):
                await wire.read_until(stream, b": keepalive\n\n")
            gates[0].set()
            await wire.read_until(stream, b'"one"')
            await wire.read_until(stream, b": keepalive\n\n")
            gates[1].set()
            rest = await wire.read_until(stream, b"0\r\n\r\n")
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_a_connection_serves_the_next_request_after_a_stream(start: Start, wire: Any):
    server = await start()
    async with await server.connect() as stream:
        for _ in range(3):
            await stream.send_all(wire.post(wire.chat(stream=True)))
            with trio.fail_after(2):
                await wire.read_until(stream, b"0\r\n\r\n")


async def test_completion_chunks_have_the_openai_shape(start: Start, wire: Any):
    server = await start()
    reply = await server.post("/v1/completions", {"model": "fake", "prompt": "hi", "stream": True})
    first, second, last, done = wire.events(reply.text)
    assert done == "[DONE]"
    assert first["object"] == "text_completion"
    assert first["id"] == reply.headers["x-request-id"]
    assert [chunk["choices"][0] for chunk in (first, second, last)] == [
        {"index": 0, "text": "Hel", "finish_reason": None},
        {"index": 0, "text": "lo", "finish_reason": None},
        {"index": 0, "text": "", "finish_reason": "stop"},
    ]
    assert last["usage"]["total_tokens"] == 5


async def test_a_native_stream_has_an_event_a_token_and_a_summary(start: Start, fake_house: Any):
    script = ["Hel", ReplyDelta("lo", (7, 8)), ReplyDelta("", (9,)), ReplyDelta("!", ())]
    server = await start(fake_house(script=script), has_keys=False)
    reply = await server.post("/v1/completions", {"model": "fake", "prompt": "hi", "stream": True})
    comment, *blocks, summary = reply.text.removesuffix("\n\n").split("\n\n")
    assert comment == ": keepalive"
    events = [json.loads(block.removeprefix("data: ")) for block in blocks]
    assert [(event["id"], event["text"]) for event in events] == [
        (100, "Hel"),
        (7, ""),
        (8, "lo"),
        (9, ""),
        (None, "!"),
    ]
    assert {event["model"] for event in events} == {"fake"}
    name, data = summary.split("\n")
    assert name == "event: done"
    assert json.loads(data.removeprefix("data: ")) == {
        "stop_reason": "Eos",
        "n_tokens": 2,
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "elapsed_s": 0.25,
    }


async def test_a_native_stream_that_fails_ends_with_an_error_event(start: Start, fake_house: Any):
    server = await start(fake_house(script=[EngineFaultError("The engine failed.")]), has_keys=False)
    reply = await server.post("/v1/completions", {"model": "fake", "prompt": "hi", "stream": True})
    name, data = reply.text.removesuffix("\n\n").split("\n")[-2:]
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "engine_error"
