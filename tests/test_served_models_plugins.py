"""What plugins may change about a model: where it comes from, its chat template, how it calls tools."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from memra.chat.chat_format import ChatFormat
from memra.chat.tool_dialects.generic import GenericDialect
from memra.chat.tool_dialects.registry import find_dialect
from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, KvType
from memra.errors import StartupError
from memra.plugins import hookimpl
from memra.plugins.loading import Declared
from memra.plugins.manager import Plugins
from memra.served_models import ServedModels
from memra.settings import ModelSettings, Settings
from tests.loading.model_directory import write_directory
from tests.loading.sentencepiece_bytes import model

CHOICE = ExecutorChoice(ExecutorKind.TORCH, num_threads=1, kv_type=KvType.F32)
TEMPLATE = (
    "{% for message in messages %}<blue>{{ message.content }}{% endfor %}{% if tools %}<paint>{{ tools }}{% endif %}"
)


class PaintDialect(GenericDialect):
    name = "paint"

    def knows(self, template: str) -> bool:
        return "<paint>" in template


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, size in {"HIDDEN": 64, "FFN": 96}.items():
        monkeypatch.setattr(f"tests.loading.model_directory.{name}", size)
    path = write_directory(tmp_path, "llama", head_dim=4)
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model())
    return path


def opened(source: str, **hooks: object) -> ChatFormat:
    plugins = Plugins()
    plugins.register(SimpleNamespace(**{name: hookimpl(function) for name, function in hooks.items()}), "painter")
    plugins._declared = Declared(dialects=(PaintDialect(),))
    models = ServedModels(Settings(models=ModelSettings(arguments=(f"tiny={source}",))), CHOICE, plugins)
    ((name, terms),) = models.terms.items()
    served = models.open(name, None, terms)
    served.close()
    assert isinstance(served.renderer, ChatFormat)
    return served.renderer


def test_memra_open_source_fetches_the_model(directory: Path):
    assert opened("shelf:3", memra_open_source=lambda source: directory if source == "shelf:3" else None)


def test_memra_chat_template_replaces_the_models_own_and_memra_tool_dialects_are_asked_first(directory: Path):
    seen: list[tuple[str, str]] = []

    def override(model, architecture, template) -> str:
        assert template is None or "blue" not in template
        seen.append((model, architecture))
        return TEMPLATE

    found = opened(str(directory), memra_chat_template=override)
    assert seen == [("tiny", "llama")]
    assert found.template.source == found.tool_template.source == TEMPLATE
    assert found.tool_style.dialect is not None
    assert found.tool_style.dialect.name == "paint"


def test_a_plugin_that_fails_is_the_reason_why_the_model_cannot_be_opened(directory: Path):
    def fail() -> None:
        raise OSError("shelf is locked")

    with pytest.raises(StartupError, match=r"plugin painter: memra_open_source failed: .*shelf is locked"):
        opened("shelf:3", memra_open_source=fail)
    with pytest.raises(StartupError, match="model tiny: plugin painter: memra_chat_template failed"):
        opened(str(directory), memra_chat_template=fail)


def test_a_dialect_that_fails_on_a_template_is_passed_over(caplog: pytest.LogCaptureFixture):
    class Broken(PaintDialect):
        def knows(self, template: str) -> bool:
            raise KeyError(template)

    assert find_dialect("<paint> or <tool_call>", further=[Broken(), PaintDialect()]).name == "paint"
    assert "the tool dialect paint failed" in caplog.text
