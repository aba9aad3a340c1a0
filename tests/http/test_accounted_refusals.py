"""What the front door tells the house of requests that it refuses, and of those that it hands over."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.errors import AuthenticationError, BusyError, InvalidLaneError, InvalidRequestError
from memra.messages.identity import Identity, KeyClass
from memra.types import Lane

Start = Callable[..., Awaitable[Any]]
CHAT, TEXTS = "/v1/chat/completions", "/v1/embeddings"
BODIES = {
    CHAT: {"model": "fake", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"model": "fake", "prompt": "hi"},
    "/v1/responses": {"model": "fake", "input": "hi"},
    "/v1/messages": {"model": "fake", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    TEXTS: {"model": "fake", "input": "hi"},
    "/v1/rerank": {"model": "fake", "query": "hi", "documents": ["ho"]},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_that_makes_no_sense_is_told_with_its_sender_and_its_route(
    start: Start, fake_house: Any, path: str
):
    server = await start(fake_house())
    reply = await server.post(path, {}, authorization="Bearer mk-1", x_lane="judge")
    assert reply.status_code == 400
    ((refused, error),) = server.house.refused
    assert isinstance(error, InvalidRequestError)
    assert (refused.identity, refused.route, refused.lane) == (Identity(principal="mk-1"), path, Lane.JUDGE)
    assert (refused.request_id, refused.model) == (reply.headers["x-request-id"], "")


async def test_a_field_that_is_refused_is_told_with_the_model_that_was_asked_for(start: Start, fake_house: Any):
    server = await start(fake_house())
    await server.post(CHAT, BODIES[CHAT] | {"top_p": 7, "stream": True})
    ((refused, _),) = server.house.refused
    assert (refused.model, refused.is_stream) == ("fake", True)


async def test_a_lane_that_is_refused_is_told_and_a_stranger_is_not(start: Start, fake_house: Any):
    server = await start(fake_house(valid_key="secret"))
    assert (await server.post(CHAT, BODIES[CHAT])).status_code == 401
    assert server.house.refused == []
    assert (await server.post(CHAT, BODIES[CHAT], authorization="Bearer secret", x_lane="fast")).status_code == 400
    ((_, error),) = server.house.refused
    assert isinstance(error, InvalidLaneError)
    assert not isinstance(error, AuthenticationError)


async def test_a_key_for_batches_that_asks_for_more_is_told(start: Start, fake_house: Any):
    server = await start(fake_house(key_class=KeyClass.BATCH))
    assert (await server.post(CHAT, BODIES[CHAT], x_lane="interactive")).status_code == 403
    assert len(server.house.refused) == 1


@pytest.mark.parametrize("path", BODIES)
async def test_what_the_house_refuses_it_knows_already(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(refusal=BusyError("Full.")))
    assert (await server.post(path, BODIES[path])).status_code == 429
    assert server.house.refused == []
    (request,) = server.house.requests or server.house.texts
    assert (request.route, request.body) == (path, None)


@pytest.mark.parametrize("path", BODIES)
async def test_the_body_goes_along_where_it_is_wanted(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(wants_bodies=True))
    reply = await server.post(path, BODIES[path])
    assert reply.status_code == 200
    (request,) = server.house.requests or server.house.texts
    assert request.body == reply.request.content


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens", "/v1/cancel"])
async def test_no_accounts_are_kept_of_what_costs_nothing(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(wants_bodies=True))
    assert (await server.post(path, {})).status_code == 400
    assert server.house.refused == []
