"""On which terms each model lies in memory: the file's tables, the lists of names, and what is refused."""

from pathlib import Path

import pytest

from memra.errors import ConfigurationError
from memra.messages.models import ModelTerms
from memra.model_terms import read_terms
from memra.served_models import plan_models
from memra.settings import Settings, read_settings
from memra.types import ModelName

A, B = ModelName("a"), ModelName("b")


def settings_of(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "memra.toml"
    file.write_text(text)
    return read_settings({}, environ=environ, file=file)


def test_a_model_has_a_table_of_its_own_or_only_a_source(tmp_path: Path):
    settings = settings_of(
        tmp_path,
        """
        [models]
        a = "/a.gguf"
        [models.b]
        source = "/b.gguf,meta.x.y=int:3"
        lazy = true
        pin = true
        idle_ttl_s = 5
        kv_mb = 64
        generic_tools = true
        """,
    )
    entries = plan_models(settings.models)
    assert [(entry.name, entry.source.text, len(entry.overrides)) for entry in entries] == [
        ("a", "/a.gguf", 0),
        ("b", "/b.gguf", 1),
    ]
    assert read_terms(settings, (A, B)) == {
        A: ModelTerms(),
        B: ModelTerms(is_lazy=True, is_pinned=True, idle_ttl_s=5.0, kv_memory_mb=64, has_generic_tools=True),
    }


def test_lists_of_names_and_defaults_hold_where_the_table_says_nothing(tmp_path: Path):
    text = '[models]\na = "/a.gguf"\n[models.b]\nsource = "/b.gguf"\nlazy = false\nidle_ttl_s = 0\n'
    environ = {"MEMRA_LAZY_MODELS": "*", "MEMRA_PINNED_MODELS": " b ,", "MEMRA_IDLE_TTL_S": "60"}
    terms = read_terms(settings_of(tmp_path, text, **environ), (A, B))
    assert terms[A] == ModelTerms(is_lazy=True, idle_ttl_s=60.0)
    assert terms[B] == ModelTerms(is_lazy=False, is_pinned=True, idle_ttl_s=0.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[models.b]\nlazy = true\n", r"\[models.b\] has no source"),
        ("[models]\nb = 3\n", r"\[models\] b: 3 is neither a source nor a table"),
        ('[models.b]\nsource = "/b"\ncolour = 1\n', r"no option 'colour'; known are source, lazy, pin"),
        ('[models.b]\nsource = "/b"\nlazy = 1\n', r"\[models.b\] lazy: 1 is not of type bool"),
        ('[models.b]\nsource = "/b"\nkv_mb = true\n', r"kv_mb: True is not of type int"),
        ('[models.b]\nsource = "/b"\nkv_mb = 0\n', r"kv_mb: 0 must be at least 1"),
        ('[models.b]\nsource = "/b"\nidle_ttl_s = -1\n', r"idle_ttl_s: -1 must be at least 0"),
        ('[pool]\nlazy = ["c"]\n', r"MEMRA_LAZY_MODELS: no model is named 'c'; there are: b"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_place(tmp_path: Path, text: str, complaint: str):
    settings = settings_of(tmp_path, text)
    with pytest.raises(ConfigurationError, match=complaint):
        plan_models(settings.models), read_terms(settings, (B,))
