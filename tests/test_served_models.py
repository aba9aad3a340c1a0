"""From settings to opened models."""

from pathlib import Path

import pytest

from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, KvType
from memra.errors import UnsupportedModelError
from memra.served_models import open_models
from memra.settings import EngineSettings, ModelSettings, Settings
from tests.loading.gguf_bytes import of_model
from tests.loading.model_directory import write_directory
from tests.loading.sentencepiece_bytes import model
from tests.models.tiny_models import make_modern_bert

CHOICE = ExecutorChoice(ExecutorKind.TORCH, num_threads=1, kv_type=KvType.F32)


@pytest.mark.parametrize(("quant", "shown"), [("none", "F32"), ("q8_0", "Q8_0")])
def test_weights_are_made_smaller_where_the_user_says_so(tmp_path, monkeypatch, quant, shown):
    for name, size in {"HIDDEN": 64, "FFN": 96}.items():
        monkeypatch.setattr(f"tests.loading.model_directory.{name}", size)
    path = write_directory(tmp_path, "llama", head_dim=4)
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(model())
    settings = Settings(models=ModelSettings(arguments=(f"tiny={path}",)), engine=EngineSettings(quant=quant))
    (served,) = open_models(settings, CHOICE)
    assert f"llama, {shown}," in served.describe()
    assert served.checkpoint.tensors["blk.0.attn_q.weight"].quant_type == shown
    assert served.checkpoint.tensors["blk.0.attn_norm.weight"].quant_type == "F32"
    served.checkpoint.close()


@pytest.mark.parametrize(
    ("extra", "named"),
    [({}, r"modern-bert model makes embeddings \(mean pooling, 32 numbers"), ({"pooling_type": 2}, "cls pooling, 32")],
)
def test_an_embedding_model_is_not_served_as_a_chat_model(tmp_path: Path, extra: dict[str, object], named: str):
    path = tmp_path / "model.gguf"
    path.write_bytes(of_model(make_modern_bert(**extra)).build())
    settings = Settings(models=ModelSettings(arguments=(f"tiny={path}",)))
    with pytest.raises(UnsupportedModelError, match=f"model tiny: .*{named}.*name a language model"):
        open_models(settings, CHOICE)
