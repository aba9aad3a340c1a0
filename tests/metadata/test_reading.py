"""What the metadata file may declare, what is refused, and which rules come of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from memra.errors import ConfigurationError
from memra.messages.model_rules import NO_RULES, ModelRules
from memra.messages.models import ModelTraits
from memra.metadata.reading import Metadata, read_metadata
from memra.metadata.source import MetadataSource
from memra.metadata.tables import Capacity, ModelTable, Pricing, ProviderTable, Reliability
from memra.types import ModelName

NAMES = (ModelName("small"), ModelName("org/large"))
GOOD = """
[models."org/large"]
name = "Large"
created = 1760000000
quantization = "int4"
datacenters = [{ country_code = "DE", region = "Hesse" }]
discount_to_user = -0.5
zdr = true
max_prompt_length = 100
max_output_length = 50
default_output_length = 20
default_reasoning_effort = "none"
default_temperature = 0.6
default_top_k = 20
[models."org/large".pricing]
prompt = "0.00000005"
completion = "0"
[models."org/large".capacity]
prompt_tpm = 9007199254740991
[models."org/large".non_thinking_sampling]
temperature = 1
[planned_models.next]
surface = "embedding"
[provider]
id = "acme-1"
"""


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read_text(text: str) -> Metadata:
        path = tmp_path / "metadata.toml"
        path.write_text(text)
        return read_metadata(path, NAMES)

    return read_text


def test_what_is_declared_is_kept_as_plain_values(read: Any):
    metadata = read(GOOD)
    declared = metadata.declared["org/large"]
    assert declared["datacenters"] == ({"country_code": "DE", "region": "Hesse"},)
    assert declared["pricing"] == {"prompt": "0.00000005", "completion": "0"}
    assert "description" not in declared, "what is not declared is not there"
    assert list(metadata.declared) == ["org/large"], "planned models are shown to nobody"
    assert metadata.provider == {"id": "acme-1"}


def test_rules_are_limits_defaults_and_how_to_think(read: Any):
    metadata = read(GOOD)
    assert metadata.rules_of(ModelName("org/large")) == ModelRules(
        max_prompt_tokens=100,
        max_output_tokens=50,
        default_output_tokens=20,
        template_options={"enable_thinking": False, "reasoning_effort": "none"},
        sampling={"temperature": 0.6, "top_k": 20},
        non_thinking_sampling={"temperature": 1.0},
    )
    assert metadata.rules_of(ModelName("small")) is NO_RULES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model.small]", "there is no [model]; known are models, planned_models, provider"),
        ("models = 3", "[models] holds one table for each model"),
        ("[models]\nsmall = 3", '[models."small"] is not a table'),
        ("[models.tiny]", '[models."tiny"]: no model of this name is served; there are: small, org/large'),
        ("[planned_models.small]", "this model is served; move the table to [models]"),
        ("[models.small]\ncolour = 1", "unknown key colour"),
        ("[models.small.pricing]\ninput = '1'", "unknown key pricing.input; known are prompt"),
        ("[models.small]\ndatacenters = [{country_code = 'De'}]", "datacenters[0].country_code: Expected"),
        ("[models.small]\ndatacenters = [{country_code = 'DE', city = 'x'}]", "unknown key datacenters[0].city"),
        ("[models.small]\nquantization = 'int5'", "quantization: Invalid enum value 'int5'"),
        ("[models.small]\nmax_output_length = 0", "max_output_length: Expected `int` >= 1"),
        (
            "[models.small]\nmax_prompt_length = 9007199254740992",
            "max_prompt_length: Expected `int` <= 9007199254740991",
        ),
        ("[models.small]\ndiscount_to_user = 1.0", "discount_to_user: Expected `float` < 1.0"),
        ("[models.small]\ndiscount_to_user = -inf", "discount_to_user: -inf is not a finite number"),
        ("[models.small]\ndiscount_to_user = nan", "discount_to_user"),
        ("[models.small]\ndefault_temperature = 0", "default_temperature: Expected `float` > 0.0"),
        ("[models.small]\ndefault_temperature = nan", "default_temperature"),
        ("[models.small]\ninput_modalities = ['text', 'image']", "input_modalities[1]: Invalid enum value 'image'"),
        ("[models.small]\nmax_output_length = 5\ndefault_output_length = 6", "6 is more than max_output_length, 5"),
        ("[models.small]\nlifecycle = 'stable'\ndeprecation_date = 2030-01-01", "the model is stable"),
        ("[models.small]\ndeprecation_date = 2030-13-01", "not valid TOML"),
        ("[provider]\nid = 'A B'", "[provider] id: Expected"),
        ("[provider]\napi_base_url = 'http://example.org'", "[provider] api_base_url: Expected"),
        ("[provider]\napi_base_url = 'https://example.org:8443/v1'", "[provider] api_base_url: Expected"),
        ("provider = 1", "[provider] is not a table"),
        ("models", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(read: Any, text: str, words: str):
    with pytest.raises(ConfigurationError) as refused:
        read(text)
    assert words in refused.value.message
    assert "metadata.toml" in refused.value.message


@pytest.mark.parametrize("price", ["1e-7", "-1", ".5", "1.", "+1", "", "٣", "0.1\n", " 1", "NaN", 0.5, 1])
def test_only_plain_decimals_are_prices(read: Any, price: object):
    with pytest.raises(ConfigurationError, match=r"pricing\.prompt"):
        read(f"[models.small.pricing]\nprompt = {price!r}".replace("'", '"'))


def test_everything_is_told_at_once(read: Any):
    with pytest.raises(ConfigurationError) as refused:
        read("[models.small]\ncolour = 1\n[models.tiny]\nmax_output_length = 0\n[x]")
    for words in ("there is no [x]", "unknown key colour", "tiny", "max_output_length"):
        assert words in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"absent.toml: the model metadata cannot be read: No such file"):
        read_metadata(tmp_path / "absent.toml", NAMES)


def test_a_broken_file_changes_nothing_when_it_is_read_again(tmp_path: Path):
    path = tmp_path / "metadata.toml"
    path.write_text(GOOD)
    source = MetadataSource(path, NAMES)
    before = source.current
    path.write_text("[models.small]\ncolour = 1")
    with pytest.raises(ConfigurationError, match="unknown key colour"):
        source.reload(NAMES)
    assert source.current is before
    path.write_text("[models.small]\nis_free = true\n[models.added]")
    assert source.reload((*NAMES, ModelName("added"))) == 2
    assert source.current.declared == {"small": {"is_free": True}, "added": {}}


def test_without_a_file_there_is_nothing_to_read_again():
    source = MetadataSource(None, NAMES)
    assert source.current == Metadata()
    with pytest.raises(ConfigurationError, match="MEMRA_MODEL_METADATA"):
        source.reload(NAMES)


def test_a_declared_quantization_that_is_not_the_models_own_is_warned_of(read: Any, tmp_path: Path, caplog: Any):
    read(GOOD)
    source = MetadataSource(tmp_path / "metadata.toml", NAMES)
    for found in ("int4", None):
        source.warn_of_contradictions(NAMES[1], ModelTraits(quantization=found))
    source.warn_of_contradictions(NAMES[0], ModelTraits(quantization="int8"))
    assert not caplog.records
    source.warn_of_contradictions(NAMES[1], ModelTraits(quantization="int8"))
    assert "says int4, but most weights are int8" in caplog.text


def test_the_page_names_every_key_and_its_example_can_be_read(read: Any):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "feeds.md").read_text()
    named = set(re.findall(r"`\.?([a-z0-9_]+)`", page))
    for table in (ModelTable, Pricing, Capacity, Reliability, ProviderTable):
        assert set(table.__struct_fields__) - named - {"region", "country_code"} == set()
    example = page.partition("```toml\n")[2].partition("```")[0].replace("chat-8b", "small")
    assert read(example).rules_of(ModelName("small")).default_output_tokens == 1024
