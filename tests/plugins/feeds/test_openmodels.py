"""The feed for OpenModels: complete or refused, and the registry's files byte by byte."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml

from memra.plugins.feeds import FeedUnavailableError, ModelCard
from memra.plugins.feeds_openmodels import OpenModelsFeed
from memra.types import ModelName, ModelTask
from tests.plugins.feeds.cards import BARE, FULL

FEED = OpenModelsFeed()
MOMENT = re.compile(r'^created_at: "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"$', flags=re.MULTILINE)
EMBED = replace(
    FULL,
    name=ModelName("embed"),
    task=ModelTask.EMBED,
    has_tools=False,
    can_reason=False,
    declared={key: value for key, value in FULL.declared.items() if key != "max_output_length"},
)


def without(card: ModelCard, key: str) -> ModelCard:
    table, _, inner = key.partition(".")
    declared: dict[str, Any] = dict(card.declared)
    if inner:
        declared[table] = {name: value for name, value in declared[table].items() if name != inner}
    else:
        del declared[table]
    return replace(card, declared=declared)


def test_a_row_says_what_is_declared_and_what_was_found():
    (row,) = FEED.render([FULL])["data"]
    assert row == {
        "id": "org/chat-8b",
        "name": "Example: Chat 8B",
        "created": 1760000000,
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "context_length": 32768,
        "max_output_length": 8192,
        "currency": "USD",
        "pricing": {
            "prompt": "0.00000005",
            "completion": "0.00000015",
            "input_cache_read": "0.00000001",
            "request": "0.001",
        },
        "supported_features": ["tool_calling", "reasoning"],
        "is_ready": False,
        "is_free": False,
        "discount_to_user": 0.25,
    }
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize("key", ["max_output_length", "pricing.prompt", "pricing.completion", "pricing.cached_prompt"])
def test_one_missing_declaration_refuses_the_whole_listing(key: str):
    with pytest.raises(FeedUnavailableError) as refused:
        FEED.render([FULL, replace(without(FULL, key), name=ModelName("other"))])
    assert str(refused.value) == f"model 'other' does not declare {key}."


def test_all_that_is_missing_is_told_together():
    with pytest.raises(FeedUnavailableError) as refused:
        FEED.render([BARE, FULL])
    assert str(refused.value).count("model 'bare'") == 5
    assert "was never loaded" in str(refused.value)


def test_a_model_that_writes_nothing_needs_no_length_and_price_of_an_answer():
    (row,) = FEED.render([without(EMBED, "pricing.completion")])["data"]
    assert row["output_modalities"] == ["embeddings"]
    assert "max_output_length" not in row


def test_the_registry_gets_a_provider_and_two_files_a_model():
    files = FEED.files([FULL, EMBED, replace(FULL, name=ModelName("rank"), task=ModelTask.RANK)])
    assert list(files) == [
        "providers/acme.yaml",
        "models/org-chat-8b.yaml",
        "mappings/acme/org-chat-8b.yaml",
        "models/embed.yaml",
        "mappings/acme/embed.yaml",
    ]
    assert files == FEED.files([FULL, EMBED]), "there is no word for models that rank"
    read = {path: yaml.safe_load(text) for path, text in files.items()}
    assert read["providers/acme.yaml"] == {
        "id": "acme",
        "name": "Acme",
        "description": "Small models on plain machines.",
        "api_base_url": "https://api.acme.example/v1",
        "auth_type": "bearer",
        "regions": ["eu-west-1", "global"],
        "compatibility": "openai",
        "created_at": "2025-06-15T15:06:40Z",
        "updated_at": "2025-06-15T15:06:40Z",
    }
    assert read["models/org-chat-8b.yaml"] == {
        "id": "org-chat-8b",
        "name": "Example: Chat 8B",
        "description": 'A model for chats: says "yes" & more.',
        "capabilities": ["chat", "completion", "function-calling", "reasoning"],
        "modalities": ["text"],
        "context_window": 32768,
        "licensing": "apache-2.0",
        "created_at": "2025-10-09T08:53:20Z",
        "updated_at": "2025-10-10T08:53:20Z",
    }
    assert read["models/embed.yaml"]["capabilities"] == ["embeddings"]
    assert read["mappings/acme/org-chat-8b.yaml"] == {
        "model_id": "org-chat-8b",
        "provider_id": "acme",
        "provider_model_name": "org/chat-8b",
        "pricing": {
            "input_per_million": 0.05,
            "output_per_million": 0.15,
            "cache_write_per_million": 0.06,
            "cache_read_per_million": 0.01,
            "reasoning_tokens_per_million": 0.15,
            "currency": "USD",
        },
        "rate_limits": {"requests_per_minute": 600, "tokens_per_minute": 2_200_000},
        "available_regions": ["eu-west-1", "global"],
        "created_at": "2025-10-09T08:53:20Z",
        "updated_at": "2025-10-10T08:53:20Z",
    }


def test_prices_are_exact_plain_numbers():
    price = "0.00000012345678901234567"
    card = replace(FULL, declared={**FULL.declared, "pricing": {"prompt": price, "completion": "12"}})
    text = FEED.files([card])["mappings/acme/org-chat-8b.yaml"]
    assert "input_per_million: 0.12345678901234567\n" in text
    assert "output_per_million: 12000000\n" in text
    assert Decimal("0.12345678901234567") == Decimal(price) * 10**6


@pytest.mark.parametrize(
    "key", ["description", "licensing", "created", "capacity.request_rpm", "capacity.prompt_tpm", "pricing.completion"]
)
def test_a_file_is_not_written_without_what_it_has_to_hold(key: str):
    with pytest.raises(FeedUnavailableError, match=f"'org/chat-8b' does not declare {key}"):
        FEED.files([without(FULL, key)])


def test_what_is_missing_of_the_provider_is_named():
    with pytest.raises(FeedUnavailableError) as refused:
        FEED.files([replace(FULL, provider={"id": "acme", "created": 0})])
    for key in ("name", "description", "api_base_url", "auth_type", "regions", "compatibility"):
        assert f"[provider] does not declare {key}" in str(refused.value)


def test_two_models_of_one_id_are_told_apart_by_declaration():
    twin = replace(FULL, name=ModelName("org.chat.8b"))
    with pytest.raises(FeedUnavailableError, match="declare openmodels_id"):
        FEED.files([FULL, twin])
    files = FEED.files([FULL, replace(twin, declared={**FULL.declared, "openmodels_id": "twin"})])
    assert "models/twin.yaml" in files


def test_a_description_that_the_registry_does_not_take_is_refused():
    with pytest.raises(FeedUnavailableError, match="10 to 2000 characters"):
        FEED.files([replace(FULL, declared={**FULL.declared, "description": "short"})])


def test_moments_are_utc_with_seconds():
    for text in FEED.files([FULL]).values():
        assert MOMENT.search(text)
        assert isinstance(yaml.safe_load(text)["created_at"], str)
