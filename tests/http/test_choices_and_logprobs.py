"""Several answers and log probabilities on the wire: both shapes of OpenAI's, whole and streamed."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memra.errors import EngineFaultError
from memra.messages.generation import ReplyDelta, ReplyFinished, TextPrompt, TokenLogprob, TokenPrompt, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
EURO = "€".encode()

ENTRIES = (
    TokenLogprob(5, -0.25, ((5, -0.25), (6, -math.inf)), b"Hi", (b"Hi", b"<end>")),
    TokenLogprob(7, -1.5, ((5, -0.5), (8, -1.25)), EURO[:2], (b"Hi", b"Hi")),
    TokenLogprob(9, -2.0, ((9, -2.0), (5, -3.0)), EURO[2:], (EURO[2:], b"Hi")),
)
LIKELY: Any = [
    ReplyDelta("Hi", (5,), logprobs=ENTRIES[:1]),
    ReplyDelta("€", (7, 9), logprobs=ENTRIES[1:]),
]
USAGE = Usage(prompt_tokens=3, completion_tokens=6, cached_tokens=1, elapsed_s=0.25)
TWO: Any = [
    ReplyDelta("b", (2,), choice=1),
    ReplyDelta("a", (1,)),
    ReplyDelta("B", (3,), choice=1),
    ReplyDelta("", choice=1, stop=StopCause.MAX_TOKENS),
    ReplyDelta("A", (4,)),
]


def two(fake_house: Any, stop: StopCause = StopCause.END_OF_SEQUENCE) -> Any:
    return fake_house(script=list(TWO), finish=ReplyFinished(stop, USAGE, choice=0))


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": "x"}], "prompt": "x", **fields}


async def test_whole_choices_are_in_order(start: Start, fake_house: Any):
    server = await start(two(fake_house))
    chat = (await server.post(CHAT, body(n=2))).json()
    assert [(one["index"], one["message"]["content"], one["finish_reason"]) for one in chat["choices"]] == [
        (0, "aA", "stop"),
        (1, "bB", "length"),
    ]
    completion = (await server.post(COMPLETIONS, body(n=2))).json()
    assert completion["choices"] == [
        {"index": 0, "text": "aA", "finish_reason": "stop"},
        {"index": 1, "text": "bB", "finish_reason": "length"},
    ]
    assert chat["usage"] == completion["usage"]
    assert chat["usage"]["total_tokens"] == 9


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("wants_usage", [False, True])
async def test_streamed_choices_interleave_and_each_has_its_end(
    start: Start, fake_house: Any, wire: Any, path: str, *, wants_usage: bool
):
    server = await start(two(fake_house))
    reply = await server.post(path, body(n=2, stream=True, stream_options={"include_usage": wants_usage}))
    *chunks, done = wire.events(reply.text)
    assert done == "[DONE]"
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert len(usages) == 1, "the usage is told once"
    if wants_usage:
        assert (chunks.pop()["choices"], usages[0]["completion_tokens"]) == ([], 6)
        assert all(chunk["usage"] is None for chunk in chunks)
    else:
        assert "usage" in chunks[-1]
    told = [(chunk["choices"][0]["index"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]
    assert told == [(1, None), (0, None), (1, None), (1, "length"), (0, None), (0, "stop")]
    if path == CHAT:
        assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks[:3]] == ["assistant", "assistant", None]


async def test_a_choice_without_text_still_has_its_role(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=[ReplyDelta("", choice=1, stop=StopCause.MAX_TOKENS)]))
    *chunks, _ = wire.events((await server.post(CHAT, body(n=2, stream=True))).text)
    deltas = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"]) for chunk in chunks]
    role = {"role": "assistant", "content": ""}
    assert deltas == [(1, role), (1, {}), (0, role), (0, {})]


async def test_the_failure_of_one_choice_is_told_once(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=[*TWO, EngineFaultError("It broke.")]))
    *_, error, done = wire.events((await server.post(CHAT, body(n=2, stream=True))).text)
    assert (error["error"]["message"], done) == ("It broke.", "[DONE]")


async def test_a_deadline_that_cut_any_choice_short_is_told_beside_the_answers(start: Start, fake_house: Any):
    script = [replace(step, stop=StopCause.DEADLINE) if step.stop else step for step in TWO]
    server = await start(fake_house(script=script))
    answer = (await server.post(CHAT, body(n=2))).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "error"]
    assert answer["error"]["code"] == "deadline_exceeded"


CHAT_ENTRIES = [
    {
        "token": "Hi",
        "logprob": -0.25,
        "bytes": [72, 105],
        "top_logprobs": [
            {"token": "Hi", "logprob": -0.25, "bytes": [72, 105]},
            {"token": "<end>", "logprob": -9999.0, "bytes": list(b"<end>")},
        ],
    },
    {
        "token": "\ufffd",
        "logprob": -1.5,
        "bytes": list(EURO[:2]),
        "top_logprobs": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
            {"token": "Hi", "logprob": -1.25, "bytes": [72, 105]},
        ],
    },
    {
        "token": "\ufffd",
        "logprob": -2.0,
        "bytes": list(EURO[2:]),
        "top_logprobs": [
            {"token": "\ufffd", "logprob": -2.0, "bytes": list(EURO[2:])},
            {"token": "Hi", "logprob": -3.0, "bytes": [72, 105]},
        ],
    },
]


async def test_a_chat_lists_entries_with_their_bytes(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=LIKELY))
    fields: Any = {"logprobs": True, "top_logprobs": 2}
    (choice,) = (await server.post(CHAT, body(**fields))).json()["choices"]
    assert choice["logprobs"] == {"content": CHAT_ENTRIES}
    *chunks, _, _ = wire.events((await server.post(CHAT, body(stream=True, **fields))).text)
    assert [chunk["choices"][0]["logprobs"]["content"] for chunk in chunks] == [CHAT_ENTRIES[:1], CHAT_ENTRIES[1:]]
    assert all(request.sampling.num_top_logprobs == 2 for request in server.house.requests)
    assert not any(request.may_reuse_answer for request in server.house.requests), "what is kept has none"


async def test_a_completion_lists_them_in_parallel(start: Start, fake_house: Any, wire: Any):
    server = await start(fake_house(script=LIKELY))
    (choice,) = (await server.post(COMPLETIONS, body(logprobs=2))).json()["choices"]
    wanted = {
        "tokens": ["Hi", "bytes:\\xe2\\x82", "bytes:\\xac"],
        "token_logprobs": [-0.25, -1.5, -2.0],
        "top_logprobs": [
            {"Hi": -0.25, "<end>": -9999.0},
            {"Hi": -0.5, "bytes:\\xe2\\x82": -1.5},
            {"bytes:\\xac": -2.0, "Hi": -3.0},
        ],
        "text_offset": [0, 2, 2],
    }
    assert choice["logprobs"] == wanted
    *chunks, _, _ = wire.events((await server.post(COMPLETIONS, body(stream=True, logprobs=2))).text)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert {name: [value for part in parts for value in part[name]] for name in wanted} == wanted


async def test_without_likely_tokens_the_lists_are_still_there(start: Start, fake_house: Any):
    alone = [ReplyDelta("Hi", (5,), logprobs=(replace(ENTRIES[0], top=(), top_bytes=()),))]
    server = await start(fake_house(script=alone))
    (chat,) = (await server.post(CHAT, body(logprobs=True))).json()["choices"]
    assert chat["logprobs"]["content"][0]["top_logprobs"] == []
    (completion,) = (await server.post(COMPLETIONS, body(logprobs=0))).json()["choices"]
    assert completion["logprobs"]["top_logprobs"] is None
    assert {request.sampling.num_top_logprobs for request in server.house.requests} == {0}


async def test_nobody_is_told_what_was_not_asked_for(start: Start):
    server = await start()
    for fields in ({}, {"logprobs": False}, {"logprobs": None}):
        for path in (CHAT, COMPLETIONS):
            (choice,) = (await server.post(path, body(**fields))).json()["choices"]
            assert "logprobs" not in choice


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"n": 8}, {"num_choices": 8}),
        ({"n": None}, {"num_choices": 1}),
        ({"max_ctx": 4096}, {"max_context_tokens": 4096}),
        ({"parallel_tool_calls": True, "metadata": {"a": "b"}, "store": True, "service_tier": "auto"}, {}),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_fields_reach_the_house(start: Start, path: str, fields: dict[str, Any], wanted: dict[str, Any]):
    server = await start()
    assert (await server.post(path, body(**fields))).status_code == 200
    (request,) = server.house.requests
    assert {name: getattr(request, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("bias", "wanted"),
    [({}, ()), (None, ()), ({"7": -100, "3": 1.5}, ((3, 1.5), (7, -100.0))), ({"0": 100}, ((0, 100.0),))],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_bias_reaches_the_house_by_id(start: Start, path: str, bias: Any, wanted: Any):
    server = await start()
    assert (await server.post(path, body(logit_bias=bias))).status_code == 200
    assert server.house.requests[0].sampling.logit_bias == wanted


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([[1, 2], [3]], [TokenPrompt((1, 2), "prompt"), TokenPrompt((3,), "prompt")]),
        ([1, 2], [TokenPrompt((1, 2), "prompt")]),
        (["a", [1]], [TextPrompt("a"), TokenPrompt((1,), "prompt")]),
    ],
)
async def test_every_kind_of_prompt_reaches_the_house(start: Start, prompt: Any, wanted: list[Any]):
    server = await start()
    assert (await server.post(COMPLETIONS, body(prompt=prompt, echo=True))).status_code == 200
    (request,) = server.house.requests
    assert [request.prompt, *request.further_prompts] == wanted
    assert request.wants_echo


async def test_chat_wraps_every_text(start: Start):
    server = await start()
    assert (await server.post(COMPLETIONS, body(prompt=["a", "b"], chat=True))).status_code == 200
    (request,) = server.house.requests
    prompts = [request.prompt, *request.further_prompts]
    assert [prompt.messages[0]["content"] for prompt in prompts] == ["a", "b"]


@pytest.mark.parametrize("fields", [{"n": 2}, {"prompt": ["a", "b"]}, {"logprobs": 0}])
async def test_what_the_native_shape_has_no_place_for_is_refused_by_name(start: Start, fields: dict[str, Any]):
    server = await start(compat="off")
    reply = await server.post(COMPLETIONS, body(**fields))
    (name,) = fields
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)
    assert "MEMRA_COMPAT=openai" in reply.json()["error"]["message"]
    assert server.house.requests == []
    assert (await server.post(COMPLETIONS, body(n=1, prompt=["a"], echo=True))).status_code == 200
