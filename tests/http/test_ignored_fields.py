"""Fields that nobody knows are ignored, and counted where an operator can see it."""

from collections.abc import Awaitable, Callable
from typing import Any

from memra.http.ignored_fields import MAX_NAMES, OTHER, IgnoredFields

Start = Callable[..., Awaitable[Any]]


async def test_unknown_fields_of_every_body_are_counted_by_name(start: Start, wire: Any):
    server = await start()
    for _ in range(2):
        assert (await server.chat(frobnicate=1, temperature=1.0)).status_code == 200
    await server.post("/v1/completions", {"model": "fake", "prompt": "a", "length_penalty": 2, "frobnicate": {}})
    await server.post("/v1/tokenize", {"model": "fake", "prompt": "a", "b": [{"model": 1}]})
    counts = (await server.get("/metrics")).json()["ignored_request_fields"]
    assert counts == {"frobnicate": 3, "length_penalty": 1, "b": 1}


async def test_a_refused_body_is_not_counted(start: Start):
    server = await start()
    await server.chat(frobnicate=1, temperature="hot")
    assert (await server.get("/metrics")).json()["ignored_request_fields"] == {}


def test_the_number_of_names_is_bounded():
    ignored = IgnoredFields()
    for number in range(3 * MAX_NAMES):
        ignored.add([f"field_{number}"])
    ignored.add(["field_0"])
    assert len(ignored.counts) == MAX_NAMES + 1
    assert ignored.counts["field_0"] == 2
    assert ignored.counts[OTHER] == 2 * MAX_NAMES


def test_odd_names_are_counted_together():
    ignored = IgnoredFields()
    ignored.add(["", "a b", "é", 'x"\n', "x" * 65, OTHER])
    assert ignored.counts == {OTHER: 6}
