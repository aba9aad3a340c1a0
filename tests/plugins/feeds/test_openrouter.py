"""The feed for OpenRouter: valid by its own schema, true, and silent about what nobody declared."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.metadata.tables import Quantization
from memra.plugins.feeds import ModelCard
from memra.plugins.feeds_openrouter import OpenRouterFeed
from memra.types import ModelName, ModelTask
from tests.plugins.feeds.cards import BARE, FULL

PLACE = Path("shared") / "data" / "openrouter"
"""Beside the repository, whose own the schema is not."""


def find_data() -> Path:
    for parent in Path(__file__).parents[4:]:
        if (parent / PLACE).is_dir():
            return parent / PLACE
    pytest.skip(f"OpenRouter's schema does not lie beside the repository, in ../{PLACE}")


def document(card: ModelCard) -> Mapping[str, Any]:
    return OpenRouterFeed().render([card])["data"][0]


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    schema = json.loads((find_data() / "provider-monitor-schema-v2.openapi.json").read_text())
    return jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/ModelDocumentV2", "components": schema["components"]}
    )


def check(validator: jsonschema_rs.Draft202012Validator, card: ModelCard) -> None:
    written = json.loads(json.dumps(document(card)))
    assert [error.message for error in validator.iter_errors(written)] == []
    assert list(complaints(written)) == []


def complaints(written: Mapping[str, Any]) -> Iterator[str]:
    """Say what the schema lets through and a marketplace does not."""
    for owner in (written, *written["input_modalities"], *written["output_modalities"]):
        for key in ("pricing", "capacity"):
            kinds = [entry["type"] for entry in owner.get(key, ())]
            if len(kinds) != len(set(kinds)):
                yield f"{key}: a type stands there twice"
            if owner.get(key, None) == []:
                yield f"{key}: is empty"
    (output,) = written["output_modalities"]
    largest, bound = output.get("max_length"), output["supported_parameters"].get("max_tokens", {}).get("max")
    if largest is not None and bound != largest["value"]:
        yield "max_tokens.max is not max_length"
    for descriptor in output["supported_parameters"].values():
        if descriptor.get("min", 0) > descriptor.get("max", descriptor.get("min", 0)):
            yield "a descriptor's least is above its most"


def test_the_schemas_own_example_passes_and_a_spoilt_one_does_not(validator: jsonschema_rs.Draft202012Validator):
    example = json.loads((find_data() / "example-openrouter-2.4.json").read_text())
    assert validator.is_valid(example)
    assert not validator.is_valid({**example, "colour": "red"})
    assert not validator.is_valid({**example, "schema_version": "2.3"})


@pytest.mark.parametrize("card", [BARE, FULL, replace(FULL, declared={}), replace(FULL, has_tools=False)])
@pytest.mark.parametrize("task", [None, *ModelTask])
def test_every_document_is_valid(
    validator: jsonschema_rs.Draft202012Validator, card: ModelCard, task: ModelTask | None
):
    check(validator, replace(card, task=task))


keys = st.sampled_from(list(FULL.declared))
parts = st.sets(st.sampled_from([*FULL.declared["pricing"], *FULL.declared["capacity"]]))


@given(
    left_out=st.sets(keys),
    kept=parts,
    task=st.sampled_from([None, *ModelTask]),
    surface=st.sampled_from([None, "chat", "embedding", "rerank", "transcription"]),
    quantization=st.sampled_from([None, *Quantization.__args__]),
    context=st.none() | st.integers(1, 2**53 - 1),
)
def test_whatever_is_left_out_the_document_is_valid(validator: Any, left_out: set[str], kept: set[str], **found: Any):
    declared = {key: value for key, value in FULL.declared.items() if key not in left_out}
    for table in ("pricing", "capacity"):
        if table in declared:
            declared[table] = {key: value for key, value in declared[table].items() if key in kept}
    if found["surface"] is not None:
        declared["surface"] = found["surface"]
    card = replace(
        FULL,
        declared=declared,
        task=found["task"],
        quantization=found["quantization"],
        context_tokens=found["context"],
    )
    check(validator, card)


def test_what_is_not_declared_is_left_out():
    assert document(BARE) == {
        "schema_version": "2.4",
        "id": "bare",
        "name": "bare",
        "created": 1_700_000_000,
        "input_modalities": [{"type": "text"}],
        "output_modalities": [
            {"type": "text", "supported_parameters": document(BARE)["output_modalities"][0]["supported_parameters"],
             "streaming": True}
        ],
    }  # fmt: skip
    assert "cost_usd" not in json.dumps(document(replace(FULL, declared={})))


def test_what_was_found_in_the_weights_wins_over_what_is_declared():
    assert FULL.declared["quantization"] == "int8"
    assert document(FULL)["quantization"] == "int4"
    assert document(replace(FULL, quantization=None))["quantization"] == "int8"
    assert "quantization" not in document(replace(FULL, quantization=None, declared={}))


def test_tools_and_thoughts_are_promised_only_by_models_that_have_them():
    def promised(card: ModelCard) -> set[str]:
        return set(document(card)["output_modalities"][0]["supported_parameters"])

    without = promised(replace(FULL, has_tools=False, can_reason=False))
    assert promised(FULL) - without == {"tools", "tool_choice", "reasoning"}
    assert {"seed", "max_tokens", "json_mode", "structured_outputs", "stop"} <= without


def test_everything_declared_stands_where_the_schema_has_it():
    written = document(FULL)
    (text,), (answer,) = written["input_modalities"], written["output_modalities"]
    assert text["supported_inputs"] == {
        "max_context_length": {"value": 32768, "unit": "token"},
        "max_prompt_length": {"value": 30000, "unit": "token"},
    }
    assert text["pricing"] == [
        {"type": "prompt", "unit": "token", "cost_usd": "0.00000005"},
        {"type": "cached_prompt", "unit": "token", "cost_usd": "0.00000001", "implicit": True},
        {"type": "cache_write", "unit": "token", "cost_usd": "0.00000006"},
    ]
    assert answer["max_length"] == {"value": 8192, "unit": "token"}
    assert answer["capacity"] == [
        {"type": "completion", "unit": "token", "per": "minute", "value": 200_000},
        {"type": "concurrency", "unit": "request", "value": 64},
    ]
    assert written["pricing"] == [{"type": "request", "unit": "request", "cost_usd": "0.001"}]
    assert written["deprecation_date"] == "2031-02-03"
    assert written["openrouter"] == {"slug": "example/slug"}
    assert written["compliance"] == {"zdr": True, "hipaa": False}


def test_models_come_in_configured_order():
    names = [ModelName(name) for name in ("b", "a", "c")]
    feed = OpenRouterFeed().render([replace(BARE, name=name) for name in names])
    assert [row["id"] for row in feed["data"]] == names
