"""However an answer is cut into deltas and however its choices interleave, the stream says what the whole body says."""

import json
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memra.http.wire.answer import Stamp, WholeChoice
from memra.http.wire.chat_answer import ChatAnswer
from memra.http.wire.completion_answer import CompletionAnswer
from memra.messages.generation import ReplyDelta, ReplyFinished, TokenLogprob, Usage
from memra.types import ModelName, RequestId, StopCause

STAMP = Stamp(RequestId("r"), 1, ModelName('m"%d'), "f")
USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1, elapsed_s=0.25)

pieces = st.binary(max_size=4) | st.text(max_size=4).map(str.encode)
likely = st.lists(st.tuples(st.integers(0, 99), st.floats(-50.0, 0.0), pieces), max_size=3)
entries = st.builds(
    lambda token_id, logprob, text, top: TokenLogprob(
        token_id, logprob, tuple((one, value) for one, value, _ in top), text, tuple(said for _, _, said in top)
    ),
    st.integers(0, 99),
    st.floats(-50.0, 0.0) | st.just(-float("inf")),
    pieces,
    likely,
)
deltas = st.builds(
    lambda text, told, choice: ReplyDelta(
        text, tuple(entry.token_id for entry in told), logprobs=tuple(told), choice=choice
    ),
    st.text(max_size=5),
    st.lists(entries, max_size=3),
    st.integers(0, 2),
)
causes = st.sampled_from([StopCause.END_OF_SEQUENCE, StopCause.MAX_TOKENS, StopCause.STOP_STRING])
CASES = st.lists(deltas, max_size=12)
ENDS = st.lists(causes, min_size=3, max_size=3)


def make(shape: type, *, wants_usage_chunk: bool = False) -> Any:
    return shape(STAMP, wants_usage_chunk=wants_usage_chunk, wants_logprobs=True)


def stream(answer: Any, said: list[ReplyDelta], stops: list[StopCause]) -> list[dict[str, Any]]:
    lines = b"".join(answer.delta(delta) for delta in said)
    lines += b"".join(answer.delta(ReplyDelta("", choice=index, stop=stops[index])) for index in (2, 0))
    lines += answer.finish(ReplyFinished(stops[1], USAGE, choice=1))
    events = lines.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def whole(answer: Any, said: list[ReplyDelta], stops: list[StopCause]) -> dict[str, Any]:
    own = [[delta for delta in said if delta.choice == index] for index in range(3)]
    choices = [WholeChoice(ReplyDelta.join(own[index], choice=index), stops[index]) for index in range(3)]
    return json.loads(answer.whole(choices, ReplyFinished(stops[1], USAGE, choice=1)))


@given(said=CASES, stops=ENDS, wants_usage_chunk=st.booleans())
def test_a_streamed_chat_says_what_the_whole_one_says(
    said: list[ReplyDelta], stops: list[StopCause], *, wants_usage_chunk: bool
):
    chunks = stream(make(ChatAnswer, wants_usage_chunk=wants_usage_chunk), said, stops)
    texts: defaultdict[int, str] = defaultdict(str)
    told: defaultdict[int, list[Any]] = defaultdict(list)
    ends: dict[int, str] = {}
    roles: list[int] = []
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    for (choice,) in [chunk["choices"] for chunk in chunks if chunk["choices"]]:
        index = choice["index"]
        assert index not in ends
        texts[index] += choice["delta"].get("content", "")
        told[index] += choice.get("logprobs", {"content": []})["content"]
        roles += [index] * ("role" in choice["delta"])
        if choice["finish_reason"]:
            ends[index] = choice["finish_reason"]
    body = whole(make(ChatAnswer), said, stops)
    assert usages == [body["usage"]]
    assert sorted(roles) == [0, 1, 2]
    for choice in body["choices"]:
        index = choice["index"]
        assert texts[index] == choice["message"]["content"]
        assert told[index] == choice["logprobs"]["content"]
        assert ends[index] == choice["finish_reason"]


@given(said=CASES, stops=ENDS, wants_usage_chunk=st.booleans())
def test_a_streamed_completion_says_what_the_whole_one_says(
    said: list[ReplyDelta], stops: list[StopCause], *, wants_usage_chunk: bool
):
    chunks = stream(make(CompletionAnswer, wants_usage_chunk=wants_usage_chunk), said, stops)
    texts: defaultdict[int, str] = defaultdict(str)
    told: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
    ends: dict[int, str] = {}
    for (choice,) in [chunk["choices"] for chunk in chunks if chunk["choices"]]:
        index = choice["index"]
        assert index not in ends
        texts[index] += choice["text"]
        for name, values in choice.get("logprobs", {}).items():
            told[index, name] += values or [None] * len(choice["logprobs"]["tokens"])
        if choice["finish_reason"]:
            ends[index] = choice["finish_reason"]
    body = whole(make(CompletionAnswer), said, stops)
    assert [chunk["usage"] for chunk in chunks if chunk.get("usage")] == [body["usage"]]
    for choice in body["choices"]:
        index, logprobs = choice["index"], choice["logprobs"]
        assert (texts[index], ends[index]) == (choice["text"], choice["finish_reason"])
        for name in ("tokens", "token_logprobs", "text_offset"):
            assert told[index, name] == logprobs[name]
        if all(entry.top for delta in said for entry in delta.logprobs):
            assert told[index, "top_logprobs"] == (logprobs["top_logprobs"] or [])
