"""`POST /v1/completions`: both shapes, and what it asks of the house."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.messages.generation import ChatPrompt, ReplyFinished, TextPrompt, TokenPrompt, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
PATH = "/v1/completions"


async def test_an_openai_completion_has_its_shape(start: Start):
    server = await start(compat="openai", has_keys=False)
    body = (await server.post(PATH, {"model": "fake", "prompt": "hi"})).json()
    assert re.fullmatch(r"cmpl-[0-9a-f]{32}", body.pop("id"))
    assert isinstance(body.pop("created"), int)
    assert body.pop("usage")["total_tokens"] == 5
    assert body == {
        "object": "text_completion",
        "model": "fake",
        "system_fingerprint": "memra-test-000000000000",
        "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}],
    }


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopCause.END_OF_SEQUENCE, "Eos"),
        (StopCause.STOP_STRING, "Callback"),
        (StopCause.STOP_TOKEN, "Callback"),
        (StopCause.MAX_TOKENS, "MaxNew"),
        (StopCause.CONTEXT_FULL, "ContextFull"),
    ],
)
async def test_a_native_completion_has_its_shape(start: Start, fake_house: Any, stop: StopCause, reason: str):
    server = await start(fake_house(finish=ReplyFinished(stop, Usage(3, 2, 1, 0.5))), has_keys=False)
    reply = await server.post(PATH, {"model": "fake", "prompt": "hi"})
    assert reply.json() == {
        "model": "fake",
        "text": "Hello",
        "tokens": [100, 101],
        "stop_reason": reason,
        "n_tokens": 2,
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "elapsed_s": 0.5,
    }
    assert reply.headers["x-request-id"].startswith("cmpl-")


@pytest.mark.parametrize(
    ("compat", "has_keys", "is_openai"),
    [(None, True, True), (None, False, False), ("openai", False, True), ("off", True, False)],
)
async def test_the_setting_decides_the_shape_and_else_the_key(
    start: Start, compat: str | None, *, has_keys: bool, is_openai: bool
):
    server = await start(compat=compat, has_keys=has_keys)
    assert ("choices" in (await server.post(PATH, {"model": "fake", "prompt": "hi"})).json()) is is_openai


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"prompt": "hi"}, TextPrompt("hi")),
        ({"prompt": "hi", "prompt_ids": [1, 2]}, TokenPrompt((1, 2))),
        ({"prompt_ids": [0]}, TokenPrompt((0,))),
        (
            {"prompt": "hi", "chat": True},
            ChatPrompt(({"role": "user", "content": "hi"},), param="prompt", is_plain_answer=True),
        ),
        (
            {"prompt": "hi", "chat": True, "reasoning_effort": "none"},
            ChatPrompt(
                ({"role": "user", "content": "hi"},),
                template_options={"enable_thinking": False, "reasoning_effort": "none"},
                param="prompt",
                is_plain_answer=True,
            ),
        ),
        ({"prompt": "hi", "echo": False, "best_of": 1, "suffix": None}, TextPrompt("hi")),
        ({"prompt": ["hi"]}, TextPrompt("hi")),
        ({"prompt": [3, 4]}, TokenPrompt((3, 4), param="prompt")),
        ({"prompt": [[3, 4]]}, TokenPrompt((3, 4), param="prompt")),
    ],
)
async def test_the_prompt_reaches_the_house(start: Start, fields: dict[str, Any], prompt: Any):
    server = await start()
    assert (await server.post(PATH, {"model": "fake", **fields})).status_code == 200
    assert server.house.requests[0].prompt == prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None, "prompt_ids": []}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["hi", ""]}, "prompt"),
        ({"prompt": ["hi", 1]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1, "a"]]}, "prompt"),
        ({"prompt": ["hi"] * 65}, "prompt"),
        ({"prompt": ["hi"] * 9, "n": 8}, "prompt"),
        ({"prompt_ids": [-1]}, "prompt_ids"),
        ({"prompt_ids": ["a"]}, "prompt_ids"),
        ({"prompt_ids": [2**31]}, "prompt_ids"),
        ({"prompt": "hi", "reasoning_effort": "high"}, "reasoning_effort"),
        ({"prompt": "hi", "enable_thinking": False}, "enable_thinking"),
        ({"prompt": "hi", "reasoning": {"enabled": True}}, "reasoning"),
        ({"prompt_ids": [1], "chat": True, "enable_thinking": True}, "enable_thinking"),
        ({"prompt": "hi", "include_reasoning": False}, "include_reasoning"),
        ({"prompt": "hi", "logprobs": 6}, "logprobs"),
        ({"prompt": "hi", "logprobs": -1}, "logprobs"),
        ({"prompt": "hi", "logprobs": True}, "logprobs"),
        ({"prompt": "hi", "logprobs": 1.5}, "logprobs"),
        ({"prompt": "hi", "best_of": 2}, "best_of"),
        ({"prompt": "hi", "suffix": "x"}, "suffix"),
        ({"prompt": "hi", "n": 9}, "n"),
        ({"prompt": "hi", "logit_bias": []}, "logit_bias"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(start: Start, fields: dict[str, Any], param: str):
    server = await start()
    reply = await server.post(PATH, {"model": "fake", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert param in reply.json()["error"]["message"]
    assert server.house.requests == []
