"""What the outside is told of the models: the names, the catalogue, and the feeds of plugins."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.errors import InvalidRequestError, PluginFaultError
from memra.http.wire.model_row import per_million_tokens
from memra.messages.models import ModelTraits
from memra.types import ModelTask
from tests.http.conftest import FakeListing

Start = Callable[..., Awaitable[Any]]
TRAITS = ModelTraits("qwen3", "int4", "qwen2", has_tools=True, can_reason=True, caches_prompts=True, speaks_chatml=True)


async def test_a_feed_is_what_a_plugin_writes(start: Start, fake_house: Any):
    server = await start(fake_house(listing=FakeListing(feeds={"market": {"data": [1]}})))
    reply = await server.get("/models?schema=market")
    assert (reply.status_code, reply.text) == (200, '{"data":[1]}')
    assert reply.headers["content-type"] == "application/json"


async def test_an_unknown_schema_is_refused_with_all_feeds(start: Start, fake_house: Any):
    server = await start(fake_house(listing=FakeListing(feeds={"market": {}, "bazaar": {}})))
    error = (await server.get("/models?schema=shop")).json()["error"]
    assert (error["param"], error["message"]) == ("schema", "`schema` must be one of: openai, market, bazaar.")


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [(InvalidRequestError("no price", param="schema"), 400, None), (PluginFaultError("it broke"), 503, "plugin_fault")],
)
async def test_a_feed_that_cannot_be_written_costs_its_reader_alone(
    start: Start, fake_house: Any, fault: Exception, status: int, code: str | None
):
    server = await start(fake_house(listing=FakeListing(feeds={"market": fault})))
    reply = await server.get("/models?schema=market")
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert (await server.get("/models")).status_code == 200


async def test_a_row_says_what_was_found_and_what_is_declared(start: Start, fake_house: Any):
    listing = FakeListing(
        provider={"id": "acme"},
        declarations={
            "fake": {
                "name": "Fake",
                "created": 5,
                "owned_by": "me",
                "max_output_length": 100,
                "lifecycle": "preview",
                "reliability": {"first_token_s": 120},
                "pricing": {"prompt": "0.00000005", "cached_prompt": "0", "request": "0.001"},
            }
        },
        found={"fake": TRAITS},
    )
    house = fake_house(listing=listing, contexts={"fake": 4096}, tasks={"fake": ModelTask.GENERATE})
    row = (await (await start(house)).get("/v1/models/fake")).json()
    assert row == {
        "id": "fake",
        "name": "Fake",
        "object": "model",
        "created": 5,
        "owned_by": "me",
        "contract_version": "2.0",
        "type": "chat",
        "endpoints": ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"],
        "capabilities": {
            "streaming": True,
            "tools": True,
            "structured_output": True,
            "reasoning": True,
            "prompt_caching": True,
        },
        "context_length": 4096,
        "embedding_length": None,
        "architecture": {"modality": "text->text", "tokenizer": "qwen2", "instruct_type": "chatml"},
        "pricing": {"prompt": "0.00000005", "completion": "0", "request": "0.001", "image": "0"},
        "top_provider": {"context_length": 4096, "max_completion_tokens": 100},
        "lifecycle": "preview",
        "reliability": {"first_token_s": 120},
        "pricing_per_million_tokens": {"currency": "USD", "input": "0.05", "cached_input": "0"},
        "provider": {"id": "acme"},
    }


async def test_a_model_that_was_never_loaded_promises_nothing(start: Start, fake_house: Any):
    row = (await (await start(fake_house())).get("/v1/models/fake")).json()
    assert (row["capabilities"], row["type"], row["context_length"]) == (None, None, None)
    for key in ("pricing_per_million_tokens", "lifecycle", "reliability", "provider", "description"):
        assert key not in row


@pytest.mark.parametrize(("architecture", "word"), [("gemma3", "gemma"), ("llama", None), (None, None)])
async def test_the_form_of_turns_has_a_word_only_where_it_is_known(
    start: Start, fake_house: Any, architecture: str | None, word: str | None
):
    listing = FakeListing(found={"fake": ModelTraits(architecture)})
    row = (await (await start(fake_house(listing=listing))).get("/v1/models/fake")).json()
    assert row["architecture"]["instruct_type"] == word


@pytest.mark.parametrize(
    ("price", "million"),
    [
        ("0", "0"),
        ("0.0", "0"),
        ("1", "1000000"),
        ("0.00000005", "0.05"),
        ("0.000001", "1"),
        ("0.000010", "10"),
        ("0.1234567890123456789", "123456.7890123456789"),
        ("0." + "0" * 40 + "1", "0." + "0" * 34 + "1"),
    ],
)
def test_prices_of_a_million_are_exact(price: str, million: str):
    assert per_million_tokens(price) == million
