"""What is declared of models holds for their requests, and goes to feeds beside what was found."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.actors.model_listing import ModelListing
from memra.errors import ConfigurationError, ContextLengthError, InvalidRequestError
from memra.messages.generation import ChatPrompt, TextPrompt
from memra.messages.models import ModelTerms, ModelTraits
from memra.messages.texts import TextsRequest, TokenizeRequest
from memra.metadata.source import MetadataSource
from memra.plugins.feeds import FeedUnavailableError, ModelCard
from memra.types import ModelName, ModelTask, RequestId, StopCause

NAMES = (ModelName("fake"), ModelName("other"))
TEXT = """
[models.fake]
max_prompt_length = 10
max_output_length = 3
default_temperature = 0.5
default_reasoning_effort = "low"
[provider]
id = "acme"
"""


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataSource:
    path = tmp_path / "metadata.toml"
    path.write_text(TEXT)
    return MetadataSource(path, NAMES)


def listing(metadata: MetadataSource, **options: Any) -> ModelListing:
    traits = ModelTraits("qwen3", "int4", "qwen2", has_tools=True)
    found = CatalogueEntry(ModelTerms(), context_tokens=5000, task=ModelTask.GENERATE, traits=traits)
    catalogue = Catalogue({NAMES[0]: found, NAMES[1]: CatalogueEntry(ModelTerms(is_lazy=True))})
    return ModelListing(catalogue, metadata, created=7, **options)


def test_cards_hold_what_was_found_and_what_is_declared(metadata: MetadataSource):
    first, second = listing(metadata).cards()
    assert (first.name, first.task, first.context_tokens, first.quantization) == ("fake", "generate", 13, "int4")
    assert (first.has_tools, first.can_reason, first.tokenizer, first.created) == (True, False, "qwen2", 7)
    assert first.declared["max_output_length"] == 3
    assert second == ModelCard(NAMES[1], created=7, provider={"id": "acme"})


async def test_a_feed_that_lacks_a_declaration_is_a_clients_error_about_the_schema(metadata: MetadataSource):
    asked: list[tuple[str, int]] = []

    async def render(schema: str, cards: Sequence[ModelCard]) -> Mapping[str, Any]:
        asked.append((schema, len(cards)))
        raise FeedUnavailableError("no price.")

    with pytest.raises(InvalidRequestError, match="There is no market feed: no price") as refused:
        await listing(metadata, feed_schemas=("market",), render=render).render_feed("market")
    assert (refused.value.param, asked) == ("schema", [("market", 2)])


async def test_the_file_is_read_again_on_demand(metadata: MetadataSource, tmp_path: Path):
    told = listing(metadata)
    (tmp_path / "metadata.toml").write_text("[models.other]\n[models.fake]\nname = 'F'")
    assert await told.reload() == {"models": 2}
    assert told.declared(NAMES[0]) == {"name": "F"}
    (tmp_path / "metadata.toml").write_text("[models.strange]")
    with pytest.raises(ConfigurationError, match="strange"):
        await told.reload()
    assert told.declared(NAMES[0]) == {"name": "F"}


async def test_limits_hold_for_requests(kit: Any, metadata: MetadataSource):
    async with kit.open_house(metadata=metadata, models={"fake": ModelTerms(), "other": ModelTerms()}) as running:
        answer = await kit.read(running.house, kit.request(max_new_tokens=5))
        assert (answer.text, answer.finished[0].stop) == ("abc", StopCause.MAX_TOKENS)
        answer = await kit.read(running.house, kit.request("r2", max_new_tokens=None))
        assert answer.text == "abc"
        answer = await kit.read(running.house, kit.request("r3", model="other", max_new_tokens=5))
        assert answer.text == "abcde", "the other model has no limits"
        assert running.house.context_tokens(NAMES[0]) == 13
        with pytest.raises(ContextLengthError, match=r"11 tokens.*takes 10"):
            await kit.read(running.house, kit.request("r4", prompt=TextPrompt("elevenchars")))
        texts = TextsRequest(RequestId("t"), NAMES[0], ModelTask.EMBED, (TextPrompt("elevenchars"),), "input")
        with pytest.raises(ContextLengthError, match=r"11 tokens.*takes 10"):
            await running.house.pool_texts(texts)
        await running.is_empty()


async def test_defaults_reach_the_worker_unless_the_client_names_them(kit: Any, metadata: MetadataSource):
    async with kit.open_house(metadata=metadata) as running:
        await kit.read(running.house, kit.request(left_open=frozenset({"temperature"})))
        await kit.read(running.house, kit.request("r2"))
        given = [prompt.sampling.temperature for prompt in running.engines[0].submitted]
        assert given == [0.5, kit.request().sampling.temperature]


async def test_a_chat_is_counted_as_it_would_be_generated_from(kit: Any, metadata: MetadataSource):
    chat = ChatPrompt(({"role": "user", "content": "hi"},))
    async with kit.open_house(metadata=metadata) as running:
        await running.house.tokenize(TokenizeRequest(RequestId("t"), NAMES[0], chat))
        (command,) = running.renderer.tokenized
        assert command.wanted.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "low"}
