"""The fields that say when an answer ends, and those of other servers that are refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.http.wire.foreign_fields import REMEDIES, ForeignFields, refuse_foreign
from memra.messages.generation import EndRules

Start = Callable[..., Awaitable[Any]]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PATHS = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": "x"}], "prompt": "x", **fields}


@PATHS
@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, EndRules()),
        ({"min_tokens": None, "ignore_eos": None, "skip_special_tokens": None}, EndRules()),
        ({"min_tokens": 0, "ignore_eos": False, "skip_special_tokens": True}, EndRules()),
        ({"min_tokens": 5, "max_tokens": 5}, EndRules(min_new_tokens=5)),
        ({"min_tokens": 5}, EndRules(min_new_tokens=5)),
        ({"ignore_eos": True}, EndRules(ignores_eos=True)),
        ({"include_stop_str_in_output": True, "stop": "x"}, EndRules(shows_stop_string=True)),
        ({"skip_special_tokens": False}, EndRules(shows_control=True)),
    ],
)
async def test_endings_reach_the_house(start: Start, path: str, fields: dict[str, Any], ends: EndRules):
    server = await start()
    assert (await server.post(path, body(**fields))).status_code == 200
    assert server.house.requests[0].ends == ends


@PATHS
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ({"min_tokens": 1, "regex": "a"}, "min_tokens"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
    ],
)
async def test_endings_that_cannot_be_are_refused_by_name(start: Start, path: str, fields: dict[str, Any], param: str):
    server = await start()
    reply = await server.post(path, body(**fields))
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert server.house.requests == []


ASKED: dict[str, Any] = {
    "allowed_token_ids": [1],
    "audio": {"voice": "a"},
    "bad_words": ["no"],
    "chat_template": "{{ 1 }}",
    "documents": [{"text": "a"}],
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "modalities": ["text", "audio"],
    "prompt_embeds": "a",
    "prompt_logprobs": 0,
    "return_token_ids": True,
    "truncate_prompt_tokens": -1,
    "use_beam_search": True,
    "web_search_options": {},
}


@PATHS
@pytest.mark.parametrize("name", ASKED)
async def test_what_other_servers_do_is_refused_by_name_and_with_a_remedy(start: Start, path: str, name: str):
    server = await start()
    error = (await server.post(path, body(**{name: ASKED[name]}))).json()["error"]
    assert error["param"] == name
    assert f"`{name}` is not supported by this server; " in error["message"]
    assert server.house.requests == []


async def test_a_field_that_asks_for_nothing_is_no_matter(start: Start):
    server = await start()
    nothing = {**dict.fromkeys(ASKED), "use_beam_search": False, "bad_words": [], "modalities": ["text"]}
    nothing |= {"function_call": "auto", "prompt_logprobs": False}
    assert (await server.chat(**nothing)).status_code == 200


def test_every_foreign_field_has_a_value_in_these_tests():
    foreign = set(ForeignFields.__struct_fields__) - set(ForeignFields.__base__.__struct_fields__)
    assert foreign == ASKED.keys() == REMEDIES.keys()
    refuse_foreign(ForeignFields())


async def test_a_prompt_may_stand_without_the_tokens_around_it_but_a_chat_has_its_templates(start: Start):
    server = await start()
    for adds in (None, True, False):
        await server.post(COMPLETIONS, body(add_special_tokens=adds))
    assert [request.prompt.adds_special for request in server.house.requests] == [True, True, False]
    reply = await server.chat(add_special_tokens=True)
    assert reply.json()["error"]["param"] == "add_special_tokens"
    assert (await server.chat(add_special_tokens=False)).status_code == 200


async def test_the_clients_own_name_reaches_the_house_and_ours_is_told(start: Start):
    server = await start()
    for path in (CHAT, COMPLETIONS):
        reply = await server.post(path, body(), x_request_id="mine")
        assert reply.headers["x-request-id"] == server.house.requests[-1].request_id != "mine"
        assert server.house.requests[-1].client_id == "mine"
    await server.post(CHAT, body())
    assert server.house.requests[-1].client_id is None
    assert (await server.post(CHAT, body(), x_request_id="x" * 257)).json()["error"]["param"] == "x-request-id"


@pytest.mark.parametrize("effort", ["xhigh", "max", "ultra"])
async def test_efforts_beyond_high_mean_high(start: Start, effort: str):
    server = await start()
    await server.chat(reasoning_effort=effort)
    assert server.house.requests[0].prompt.template_options["reasoning_effort"] == "high"
