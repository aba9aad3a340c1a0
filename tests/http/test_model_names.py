"""A model is found by its name, or by the last part of it, and answers are given under its name."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.http.model_names import canonical_model
from memra.types import ModelName

Start = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("a", "a"),
        ("b", "org/b"),
        ("org/b", "org/b"),
        ("c", "c"),  # two end so: unknown
        ("x/b", "x/b"),
        ("", ""),
        ("B", "B"),
    ],
)
def test_the_last_part_of_a_name_says_which_model_where_only_one_ends_so(name: str, meant: str):
    served = [ModelName(model) for model in ("a", "org/b", "org/c", "com/c", "org/a")]
    assert canonical_model(name, served) == meant


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_is_given_under_the_models_own_name(start: Start, wire: Any, *, is_stream: bool):
    server = await start()
    reply = await server.chat(model="other", stream=is_stream)
    body = wire.events(reply.text)[0] if is_stream else reply.json()
    assert body["model"] == "org/other"
    assert server.house.requests[-1].model == "org/other"
