"""Responses and messages: what a stream makes together is the whole answer, however the answer came."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.http.wire.answer import Stamp
from memra.http.wire.messages_answer import MessagesAnswer
from memra.http.wire.responses_answer import ResponsesAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyStarted, ToolCallDelta, Usage
from memra.types import ModelName, RequestId, StopCause

STAMP = Stamp(RequestId("resp_00"), 1, ModelName("fake"), "f")
USAGE = Usage(3, 2, 1, 0.25)
LETTERS = 'aé😀 \n"'
PIECES = st.lists(st.text(alphabet=LETTERS, min_size=1, max_size=3), max_size=4)


def call_deltas(index: int, value: str, cut: int) -> list[ReplyDelta]:
    text = json.dumps({"a": value})
    first = ToolCallDelta(index, "", f"call_{index}", f"f{index}")
    return [ReplyDelta("", tool_calls=(call,)) for call in (first, *_cut(index, text, cut))]


def _cut(index: int, text: str, cut: int) -> list[ToolCallDelta]:
    return [ToolCallDelta(index, text[start : start + cut]) for start in range(0, len(text), cut)]


@st.composite
def answers(draw: st.DrawFn) -> list[ReplyDelta]:
    deltas: list[ReplyDelta] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(["reasoning", "text", "call"]), max_size=5)):
        if kind == "call":
            deltas += call_deltas(num_calls, draw(st.text(alphabet=LETTERS, max_size=5)), draw(st.integers(1, 9)))
            num_calls += 1
        else:
            deltas += [ReplyDelta(**{"text": "", kind: piece}) for piece in draw(PIECES)]
    return deltas


def events(data: bytes) -> list[dict[str, Any]]:
    read = []
    for block in data.split(b"\n\n")[:-1]:
        name, line = block.split(b"\n", 1)
        event = msgspec.json.decode(line.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        read.append(event)
    return read


def streamed(answer: Any, deltas: list[ReplyDelta], finished: ReplyFinished) -> list[dict[str, Any]]:
    data = answer.begin(ReplyStarted(3, 1)) + b"".join(map(answer.delta, deltas)) + answer.finish(finished)
    return events(data)


def whole(answer: Any, deltas: list[ReplyDelta], finished: ReplyFinished) -> dict[str, Any]:
    for delta in deltas:
        answer.keep(delta)
    return msgspec.json.decode(answer.whole(finished))


def responses_output(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put a stream's items together from their deltas alone."""
    output: list[dict[str, Any]] = []
    for event in stream:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(output)
                output.append(event["item"])
            case "content_part.added":
                output[event["output_index"]]["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta":
                output[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                output[event["output_index"]]["arguments"] += event["delta"]
            case "output_item.done":
                output[event["output_index"]]["status"] = event["item"]["status"]
                assert output[event["output_index"]] == event["item"]
    return output


def messages_content(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for event in stream:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(content)
                content.append(event["content_block"])
            case "content_block_delta":
                delta, block = event["delta"], content[event["index"]]
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
                if delta["type"] == "input_json_delta":
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                else:
                    block[field[delta["type"]]] += delta[field[delta["type"]]]
    for index, text in inputs.items():
        content[index]["input"] = json.loads(text)
    return content


@given(answers(), st.sampled_from([StopCause.END_OF_SEQUENCE, StopCause.MAX_TOKENS]))
def test_a_streamed_response_is_the_whole_one(deltas: list[ReplyDelta], stop: StopCause):
    finished = ReplyFinished(stop, USAGE)
    expected = whole(ResponsesAnswer(STAMP, {}, {}), deltas, finished)
    stream = streamed(ResponsesAnswer(STAMP, {}, {}), deltas, finished)
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    assert stream[-1]["response"] == expected
    assert responses_output(stream) == expected["output"]


@given(answers(), st.sampled_from(list(StopCause)))
def test_a_streamed_message_is_the_whole_one(deltas: list[ReplyDelta], stop: StopCause):
    finished = ReplyFinished(stop, USAGE)
    expected = whole(MessagesAnswer(STAMP, stop_sequences=()), deltas, finished)
    stream = streamed(MessagesAnswer(STAMP, stop_sequences=()), deltas, finished)
    assert messages_content(stream) == expected["content"]
    end = next(event for event in stream if event["type"] == "message_delta")
    assert {**end["delta"], "usage": end["usage"]} == {
        name: expected[name] for name in ("stop_reason", "stop_sequence", "usage")
    }


@pytest.mark.parametrize(
    "make", [lambda: ResponsesAnswer(STAMP, {}, {}), lambda: MessagesAnswer(STAMP, stop_sequences=())]
)
def test_a_joined_answer_is_the_one_that_came_in_pieces(make: Any):
    deltas = [ReplyDelta("", reasoning="hm"), ReplyDelta("say"), *call_deltas(0, "x", 3), *call_deltas(1, "y", 2)]
    joined = ReplyDelta("say", reasoning="hm", tool_calls=tuple(call for delta in deltas for call in delta.tool_calls))
    finished = ReplyFinished(StopCause.TOOL_CALLS, USAGE)
    assert whole(make(), deltas, finished) == whole(make(), [joined], finished)
