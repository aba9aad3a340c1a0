"""From settings to opened models."""

from math import prod
from pathlib import Path

import pytest

from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, KvType
from memra.errors import ConfigurationError, SourceError
from memra.messages.models import ModelTerms
from memra.served_models import ServedModels, open_models, refuse_crowding
from memra.settings import EngineSettings, ModelSettings, Settings
from memra.types import ModelName, ModelTask
from tests.loading.model_directory import write_directory
from tests.loading.sentencepiece_bytes import model

CHOICE = ExecutorChoice(ExecutorKind.TORCH, num_threads=1, kv_type=KvType.F32)


def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, size in {"HIDDEN": 64, "FFN": 96}.items():
        monkeypatch.setattr(f"tests.loading.model_directory.{name}", size)
    path = write_directory(tmp_path, "llama", head_dim=4)
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model())
    return path


@pytest.mark.parametrize(("quant", "shown"), [("none", "F32"), ("q8_0", "Q8_0")])
def test_weights_are_made_smaller_where_the_user_says_so(tmp_path, monkeypatch, quant, shown):
    path = tiny(tmp_path, monkeypatch)
    settings = Settings(models=ModelSettings(arguments=(f"tiny={path}",)), engine=EngineSettings(quant=quant))
    (served,) = open_models(settings, CHOICE)
    assert f"llama, {shown}," in served.describe()
    assert served.checkpoint.tensors["blk.0.attn_q.weight"].quant_type == shown
    assert served.checkpoint.tensors["blk.0.attn_norm.weight"].quant_type == "F32"
    served.checkpoint.close()


def test_a_model_is_opened_by_its_name_or_by_another_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tiny(tmp_path, monkeypatch)
    models = ServedModels(Settings(models=ModelSettings(arguments=(f"tiny={path}", "gone=/no.gguf"))), CHOICE)
    assert list(models.terms) == ["tiny", "gone"]
    configured = models.open(ModelName("tiny"), None, ModelTerms())
    assert configured.context_tokens == configured.renderer.context_tokens
    with pytest.raises(SourceError, match=r"model gone: .*there is no"):
        models.open(ModelName("gone"), None, ModelTerms())
    other = models.open(ModelName("gone"), str(path), ModelTerms())
    assert (other.name, other.identity) == ("gone", configured.identity)


def test_the_estimate_counts_weights_as_the_executor_keeps_them_and_the_whole_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    models = ServedModels(Settings(models=ModelSettings(arguments=(f"tiny={tiny(tmp_path, monkeypatch)}",))), CHOICE)
    large = models.open(ModelName("tiny"), None, ModelTerms(kv_memory_mb=8))
    small = models.open(ModelName("tiny"), None, ModelTerms(kv_memory_mb=4))
    assert large.num_bytes - small.num_bytes == 4 << 20
    num_values = sum(prod(tensor.shape) for tensor in small.checkpoint.tensors.values())
    assert small.num_bytes == 4 * num_values + (4 << 20)
    built = small.build()
    assert built.executor.num_pages == small.plan.num_pages
    built.executor.close()
    refuse_crowding((large, small), None)
    refuse_crowding((large, small), large.num_bytes + small.num_bytes)
    with pytest.raises(ConfigurationError, match=r"MEMRA_MEMORY_MB: the models to start with need about 13 MiB"):
        refuse_crowding((large, small), large.num_bytes + small.num_bytes - 1)


@pytest.mark.models
def test_an_embedding_model_is_opened_with_its_width_and_pages_for_texts_alone(minilm_directory: Path):
    settings = Settings(models=ModelSettings(arguments=(f"mini={minilm_directory}",)))
    (served,) = open_models(settings, CHOICE)
    assert (served.task, served.embedding_width, served.context_tokens) == (ModelTask.EMBED, 384, 512)
    assert ": bert for embeddings, F32, " in served.describe()
    assert served.plan.num_pages == 8 + 64, "one text of the longest kind, and 64 short ones"
    built = served.build()
    assert built.pooled is not None
    assert (built.pooled.width, built.pooled.context_tokens) == (384, 512)
    built.executor.close()
    served.close()
