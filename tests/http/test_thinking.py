"""Four spellings of "think" and "do not think" become two template variables."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Start = Callable[..., Awaitable[Any]]


def effort(level: str, *, is_thinking: bool) -> dict[str, Any]:
    return {"enable_thinking": is_thinking, "reasoning_effort": level}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"enable_thinking": True}, {"enable_thinking": True}),
        ({"reasoning_effort": "none"}, effort("none", is_thinking=False)),
        ({"reasoning_effort": "minimal"}, effort("minimal", is_thinking=False)),
        ({"reasoning_effort": "low"}, effort("low", is_thinking=True)),
        ({"reasoning_effort": "medium"}, effort("medium", is_thinking=True)),
        ({"reasoning_effort": "high"}, effort("high", is_thinking=True)),
        ({"reasoning_effort": "xhigh"}, effort("high", is_thinking=True)),
        ({"reasoning": {"effort": "max"}, "reasoning_effort": "ultra"}, effort("high", is_thinking=True)),
        ({"reasoning": {}}, {}),
        ({"reasoning": {"effort": None, "enabled": None, "exclude": False}}, {}),
        ({"reasoning": {"enabled": False}}, {"enable_thinking": False}),
        ({"reasoning": {"effort": "high"}}, effort("high", is_thinking=True)),
        ({"reasoning": {"effort": "none", "enabled": False}}, effort("none", is_thinking=False)),
        ({"reasoning_effort": "low", "reasoning": {"effort": "low"}}, effort("low", is_thinking=True)),
        ({"include_reasoning": True}, {}),
        ({"include_reasoning": False}, {"enable_thinking": False}),
        ({"reasoning": {"exclude": True}}, {"enable_thinking": False}),
        ({"include_reasoning": False, "reasoning": {"enabled": False, "exclude": True}}, {"enable_thinking": False}),
        ({"enable_thinking": True, "chat_template_kwargs": {"x": 1}}, {"enable_thinking": True, "x": 1}),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": True}},
            {"enable_thinking": True},
        ),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": None}},
            {"enable_thinking": True},
        ),
        ({"chat_template_kwargs": {"enable_thinking": "maybe"}}, {"enable_thinking": "maybe"}),
    ],
)
async def test_every_spelling_becomes_template_variables(start: Start, fields: dict[str, Any], options: dict[str, Any]):
    server = await start()
    assert (await server.chat(**fields)).status_code == 200
    assert server.house.requests[0].prompt.template_options == options


@pytest.mark.parametrize(
    ("fields", "param", "other"),
    [
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            "enable_thinking",
            "chat_template_kwargs",
        ),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": 1}},
            "enable_thinking",
            "chat_template_kwargs",
        ),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            "reasoning_effort",
            "chat_template_kwargs",
        ),
        ({"enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort", "enable_thinking"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning", "reasoning_effort"),
        ({"reasoning": {"enabled": False, "effort": "high"}}, "reasoning", "reasoning.enabled"),
        ({"enable_thinking": True, "include_reasoning": False}, "include_reasoning", "enable_thinking"),
        ({"reasoning": {"exclude": True, "effort": "high"}}, "reasoning", "reasoning.exclude"),
    ],
)
async def test_a_contradiction_is_refused_with_both_names(start: Start, fields: dict[str, Any], param: str, other: str):
    server = await start()
    reply = await server.chat(**fields)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert f"contradicts `{other}`" in error["message"]
    assert server.house.requests == []
