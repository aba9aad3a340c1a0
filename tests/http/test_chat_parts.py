"""Thoughts and calls of tools in a chat completion, whole and streamed."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import openai
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from memra.http.wire.answer import Stamp, WholeChoice
from memra.http.wire.chat_answer import ChatAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage, join_calls
from memra.types import ModelName, RequestId, StopCause

Start = Callable[..., Awaitable[Any]]
FINISHED = ReplyFinished(StopCause.TOOL_CALLS, Usage(3, 9, 0, 0.1))
THOUGHTS = [ReplyDelta("", (1,), "I must "), ReplyDelta("", (2,), "look.")]
CALLS = [
    ReplyDelta("", (3,), "", (ToolCallDelta(0, call_id="call_a", name="look"),)),
    ReplyDelta("", (4,), "", (ToolCallDelta(0, '{"at":'),)),
    ReplyDelta("", (5, 6), "", (ToolCallDelta(0, '"é"}'), ToolCallDelta(1, "{}", "call_b", "tell"))),
]
WHOLE_CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": '{"at":"é"}'}},
    {"id": "call_b", "type": "function", "function": {"name": "tell", "arguments": "{}"}},
]


async def stream(server: Any, wire: Any) -> list[dict[str, Any]]:
    """The choices of all chunks of a stream."""
    *chunks, done = wire.events((await server.chat(stream=True)).text)
    assert done == "[DONE]"
    return [chunk["choices"][0] for chunk in chunks]


async def test_a_whole_answer_has_thoughts_under_both_names(start: Start, fake_house: Any):
    server = await start(fake_house(script=[*THOUGHTS, "Yes."]))
    choice = (await server.chat()).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning": "I must look.",
        "reasoning_content": "I must look.",
        "reasoning_details": [{"type": "reasoning.text", "text": "I must look."}],
    }


async def test_a_whole_answer_that_only_calls_has_no_content(start: Start, fake_house: Any):
    server = await start(fake_house(script=CALLS, finish=FINISHED))
    choice = (await server.chat()).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": WHOLE_CALLS}


async def test_text_beside_calls_is_kept(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Let me see.", *CALLS], finish=FINISHED))
    message = (await server.chat()).json()["choices"][0]["message"]
    assert (message["content"], message["tool_calls"]) == ("Let me see.", WHOLE_CALLS)


async def test_an_answer_of_thoughts_alone_has_empty_content(start: Start, fake_house: Any):
    message = (await (await start(fake_house(script=THOUGHTS))).chat()).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("", "I must look.")


async def test_streamed_thoughts_come_under_both_names_and_the_first_tells_the_role(
    start: Start, fake_house: Any, wire: Any
):
    *choices, last = await stream(await start(fake_house(script=[*THOUGHTS, "Yes."])), wire)
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "reasoning": "I must ", "reasoning_content": "I must "},
        {"reasoning": "look.", "reasoning_content": "look."},
        {"content": "Yes."},
    ]
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")


async def test_streamed_calls_are_named_once_and_keep_their_index(start: Start, fake_house: Any, wire: Any):
    *choices, last = await stream(await start(fake_house(script=CALLS, finish=FINISHED)), wire)
    assert [choice["delta"] for choice in choices] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "look", "arguments": ""}}
            ],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": '"é"}'}},
                {"index": 1, "id": "call_b", "type": "function", "function": {"name": "tell", "arguments": "{}"}},
            ]
        },
    ]
    assert [choice["finish_reason"] for choice in choices] == [None] * 3
    assert last["finish_reason"] == "tool_calls"


async def test_one_chunk_shows_one_kind_of_thing(start: Start, fake_house: Any, wire: Any):
    everything = ReplyDelta("Yes.", (1, 2, 3), "hm", (ToolCallDelta(0, "{}", "call_a", "tell"),))
    *choices, _ = await stream(await start(fake_house(script=[everything], finish=FINISHED)), wire)
    kinds = [set(choice["delta"]) - {"role"} for choice in choices]
    assert kinds == [{"reasoning", "reasoning_content"}, {"content"}, {"tool_calls"}]


async def test_one_call_at_most_reaches_the_house(start: Start):
    server = await start()
    for value in (None, True, False):
        assert (await server.chat(parallel_tool_calls=value)).status_code == 200
    assert [request.prompt.is_single_call for request in server.house.requests] == [False, False, True]


@pytest.mark.parametrize("choice", [None, "auto", "none"])
async def test_tools_are_left_out_where_none_may_be_called(start: Start, choice: str | None):
    server = await start()
    tools = [{"type": "function", "function": {"name": "f"}}]
    await server.chat(tools=tools, tool_choice=choice)
    assert (server.house.requests[0].prompt.tools is None) is (choice == "none")


async def test_a_text_completion_is_plain(start: Start, fake_house: Any):
    server = await start(fake_house(), has_keys=False)
    await server.post("/v1/completions", {"model": "fake", "prompt": "hi", "chat": True})
    assert server.house.requests[0].prompt.is_plain_answer


async def test_openais_client_adds_a_stream_up_to_the_whole(start: Start, fake_house: Any):
    server = await start(fake_house(script=[*THOUGHTS, "See.", *CALLS], finish=FINISHED))

    def add_up() -> Any:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0, http_client=http) as client:
            ask = partial(client.chat.completions.stream, model="fake", messages=[{"role": "user", "content": "hi"}])
            with ask() as events:
                return events.get_final_completion().choices[0]

    choice = await trio.to_thread.run_sync(add_up)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "See."
    assert choice.message.reasoning == choice.message.reasoning_content == "I must look."
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert calls == [("call_a", "look", '{"at":"é"}'), ("call_b", "tell", "{}")]


THOUGHT_OR_TEXT = st.text(max_size=4)
PARTS = st.builds(
    lambda text, thought, shreds: ReplyDelta(text, (1,), thought, join_calls(shreds)),
    THOUGHT_OR_TEXT,
    THOUGHT_OR_TEXT,
    st.lists(st.builds(ToolCallDelta, st.integers(0, 1), THOUGHT_OR_TEXT), max_size=3),
)


@given(said=st.lists(PARTS, max_size=6), wants_calls=st.booleans())
def test_a_stream_adds_up_to_the_whole(*, said: list[ReplyDelta], wants_calls: bool):
    begun = ReplyDelta("", (), "", tuple(ToolCallDelta(at, "", f"call_{at}", "look") for at in range(2)))
    said = [begun, *said] if wants_calls else [replace(delta, tool_calls=()) for delta in said]
    stamp = Stamp(RequestId("r"), 1, ModelName("m"), "f")
    streamed, collected = (ChatAnswer(stamp, wants_usage_chunk=False) for _ in range(2))
    lines = b"".join([*map(streamed.delta, said), streamed.finish(FINISHED)]).decode().split("\n\n")
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-2]]
    whole = json.loads(collected.whole([WholeChoice(ReplyDelta.join(said), FINISHED.stop)], FINISHED))
    message = whole["choices"][0]["message"]
    added = {name: "".join(delta.get(name) or "" for delta in deltas) for name in ("content", "reasoning")}
    assert added == {name: message.get(name) or "" for name in added}
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    arguments = ["", ""]
    for call in [call for delta in deltas for call in delta.get("tool_calls", ())]:
        arguments[call["index"]] += call["function"]["arguments"]
    assert arguments[: len(message.get("tool_calls", ()))] == [
        call["function"]["arguments"] for call in message.get("tool_calls", ())
    ]
    assert ("tool_calls" in message) is wants_calls
